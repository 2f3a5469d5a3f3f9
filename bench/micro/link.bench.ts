/**
 * The link between the service’s processes (engine/protocol/link.ts) compared with Node’s own channel: why it exists.
 */
import { fork } from 'node:child_process';
import { PerformanceObserver, constants } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { LinkedChild } from '../../test/support/linked-child.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const ROUNDS = 5;
const MESSAGES = 20_000;
const AHEAD = 4;

/** About the size of a short request’s body and of its prompt’s tokens. */
const MESSAGE = {
  v: 1,
  kind: 'item',
  item: 7,
  step: 'tokenize',
  sent: { route: 'chat', bytes: new Uint8Array(300).fill(65) },
  tokens: new Uint32Array(60).fill(1234),
};

interface Peer {
  readonly send: () => void;
  readonly close: () => void;
}

type Open = (heard: () => void) => Peer;

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

const overChannel: Open = (heard) => {
  const child = fork(path('../support/channel-echo.js'), { serialization: 'advanced' });
  child.on('message', heard);
  return { send: () => void child.send(MESSAGE, () => undefined), close: () => child.disconnect() };
};

const overLink: Open = (heard) => {
  const child = new LinkedChild(path('../../test/support/link-echo.js'));
  child.on('message', heard);
  return { send: () => child.send(MESSAGE), close: () => child.leave() };
};

interface Round {
  readonly us: number;
  readonly cpuUs: number;
  /** Young collections of this process, ms each. */
  readonly pauses: readonly number[];
}

async function round(open: Open): Promise<Round> {
  const pauses: number[] = [];
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      // Node’s types have no details of entries.
      const { duration, detail } = entry as typeof entry & { readonly detail: { readonly kind: number } };
      if (detail.kind === constants.NODE_PERFORMANCE_GC_MINOR) pauses.push(duration);
    }
  });
  let left = MESSAGES;
  let end: () => void = () => undefined;
  const all = new Promise<void>((resolve) => (end = resolve));
  const peer = open(() => {
    left -= 1;
    if (left >= AHEAD) peer.send();
    if (left === 0) end();
  });
  const cpu = process.cpuUsage();
  const from = performance.now();
  observer.observe({ entryTypes: ['gc'] });
  for (let i = 0; i < AHEAD; i++) peer.send();
  await all;
  const ms = performance.now() - from;
  const { user, system } = process.cpuUsage(cpu);
  // Entries arrive a turn later.
  await new Promise((resolve) => setImmediate(resolve));
  observer.disconnect();
  peer.close();
  return { us: (ms * 1000) / MESSAGES, cpuUs: (user + system) / MESSAGES, pauses };
}

function row(name: string, rounds: readonly Round[]): Row {
  const pauses = rounds.flatMap((each) => each.pauses);
  return {
    over: name,
    'µs a round trip': median(rounds.map(({ us }) => us)),
    'µs of CPU, this side': median(rounds.map(({ cpuUs }) => cpuUs)),
    'young collection p50 ms': median(pauses),
    'at most ms': Math.max(...pauses),
  };
}

const channel: Round[] = [];
const link: Round[] = [];
for (let i = 0; i < ROUNDS; i++) {
  channel.push(await round(overChannel));
  link.push(await round(overLink));
}
const ratio = median(channel.map(({ us }, i) => (link[i]?.us ?? NaN) / us));

await keep('link', {
  title: 'The link between processes beside Node’s own channel',
  about: [
    `A message with a request’s body and tokens to a process that sends it back, ${AHEAD} under way, ${MESSAGES} a round; medians of ${ROUNDS} rounds in turn. The channel is \`child_process\`’s with \`serialization: 'advanced'\`, which carries typed arrays too. Young collections: of the process that measures.`,
  ],
  rows: [row('Node’s channel', channel), row('the link', link)],
  conclusions: [`A round trip over the link takes ${ratio.toFixed(2)} of one over the channel (median of pairs).`],
});
