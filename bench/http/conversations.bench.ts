/**
 * Conversations on four replicas behind one queue, beside one engine with as many seats, nginx before four sidecars, and nginx before
 * four llama-servers: `node dist/bench/http/conversations.bench.js`. Needs `make peers` and nginx; about four minutes.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../../test/support/keys.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { behindNginx, llamaServer, needNginx, type Server } from '../overload/servers.js';
import { ask, type ChatTarget, type Turn } from '../support/conversation.js';
import { seeded } from '../support/load.js';
import { endlessEmbedded } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const CONVERSATIONS = 64;
const TURNS = 8;
const REPLICAS = 4;
/** Of all replicas together: as many as conversations. */
const SEATS = 64;
const CONTEXT = 1024;
const REPLY = 16;
/** Of a question. */
const WORDS = 60;
/** Mean time between a reply and the next question, ms. */
const PAUSE_MS = 2000;
/** The goal: of what one engine with all seats reuses. */
const GOAL = 0.95;
const VOCABULARY = ['the', 'sea', 'and', 'sky', 'what', 'water', 'when', 'night', 'story', 'year'];

needNginx();
const file = await endlessEmbedded();
const caller = makeKey({ id: 'caller', account: 'caller' });
const folder = await mkdtemp(join(tmpdir(), 'ra-conversations-'));
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: [caller.stored] }));

type Reuse = 'any' | 'auto';

/** A sidecar with so many seats in all. */
async function sidecar(seats: number, replicas: number, prefixReuse: Reuse): Promise<Server> {
  const teardowns = new Teardowns();
  const sizes = { seats: seats / replicas, contextPerSeat: CONTEXT, threads: 1, gpu: false, replicas, prefixReuse };
  const { port } = await Sidecar.start(teardowns, {
    config: {
      models: [{ id: CHAT, kind: 'chat', file, ...sizes }],
      keys: { file: keyFile },
      queue: { maxWaitMs: 600_000, waitingPerSeat: 1000 },
      development: { validateAnswers: false, learnedQueue: false },
    },
  });
  return { name: 'ra-sidecar', target: { port, keys: { caller: caller.key } }, close: () => teardowns.run() };
}

async function fronted(make: () => Promise<Server>): Promise<Server> {
  const first = await make();
  const others: Server[] = [];
  while (others.length < REPLICAS - 1) others.push(await make());
  const nginx = await behindNginx([first, ...others]);
  const close = async (): Promise<void> => {
    for (const server of [nginx, first, ...others]) await server.close();
  };
  return { ...nginx, close };
}

const each = { file, seats: SEATS / REPLICAS, context: CONTEXT, threads: 1 };
/** What is compared with which engine of all seats. */
interface Compared {
  readonly name: string;
  readonly reuse: Reuse;
  readonly start: () => Promise<Server>;
}

const ONE = 'one engine with all seats';
const OURS = 'four replicas, one queue';
const compared: readonly Compared[] = [
  ...(['any', 'auto'] as const).flatMap((reuse): Compared[] => [
    { name: ONE, reuse, start: () => sidecar(SEATS, 1, reuse) },
    { name: OURS, reuse, start: () => sidecar(SEATS, REPLICAS, reuse) },
  ]),
  {
    name: 'nginx in turn before four sidecars',
    reuse: 'any',
    start: () => fronted(() => sidecar(SEATS / REPLICAS, 1, 'any')),
  },
  {
    name: 'nginx in turn before four llama-servers',
    reuse: 'any',
    start: () => fronted(() => llamaServer(each, [], ['--jinja'])),
  },
];

/** One conversation, with pauses that are the same for each server. */
async function converse(target: ChatTarget, conversation: number): Promise<Turn[]> {
  const random = seeded(conversation + 1);
  const messages: { role: string; content: string }[] = [];
  const turns: Turn[] = [];
  for (let turn = 0; turn < TURNS; turn += 1) {
    await new Promise((later) => setTimeout(later, -Math.log(1 - random()) * PAUSE_MS));
    const words = Array.from({ length: WORDS }, () => VOCABULARY[Math.floor(random() * VOCABULARY.length)]);
    messages.push({ role: 'user', content: `${conversation} ${words.join(' ')}` });
    const body = { model: CHAT, messages, max_tokens: REPLY, temperature: 0 };
    const asked = await ask(target, body);
    messages.push({ role: 'assistant', content: asked.reply });
    turns.push(asked.turn);
  }
  return turns;
}

/** The share that each reused, by its name and setting. */
const reused = new Map<string, number>();
const reusedBy = (name: string, reuse: Reuse): number => reused.get(`${name} ${reuse}`) ?? NaN;
const rows: Row[] = [];
for (const { name, reuse, start } of compared) {
  const server = await start();
  const { port, keys, extras } = server.target;
  const key = keys['caller'];
  const target = {
    port,
    ...(key !== undefined && { key }),
    extras: { ...extras, ...(key === undefined && { cache_prompt: true }) },
  };
  const from = performance.now();
  const all = await Promise.all(Array.from({ length: CONVERSATIONS }, (_, at) => converse(target, at)));
  const seconds = (performance.now() - from) / 1000;
  await server.close();
  const turns = all.flat();
  const sum = (of: (turn: Turn) => number): number => turns.reduce((total, turn) => total + of(turn), 0);
  const share = sum(({ cachedTokens }) => cachedTokens) / sum(({ promptTokens }) => promptTokens);
  reused.set(`${name} ${reuse}`, share);
  const ttfts = turns.map(({ ttftMs }) => ttftMs);
  rows.push({
    what: name,
    prefixReuse: name.includes('llama-server') ? '' : reuse,
    'prompt tokens': sum(({ promptTokens }) => promptTokens),
    'share reused': share,
    'of one engine': share / reusedBy(ONE, reuse),
    'TTFT p50 ms': median(ttfts),
    'TTFT p99 ms': quantile(ttfts, 0.99),
    'until the last reply, s': seconds,
  });
}
await rm(folder, { recursive: true, force: true });

await keep('conversations-http', {
  title: 'Conversations over HTTP on four replicas',
  about: [
    `${CONVERSATIONS} conversations of ${TURNS} turns at once, over HTTP: questions of ${WORDS} words after pauses of ${PAUSE_MS / 1000} s on average, the same for each server; greedy replies of ${REPLY} tokens, a llama model of 3 million weights. ${SEATS} seats or slots of ${CONTEXT} tokens in all, each engine on one compute thread; all share two cores, so times say little. Default settings otherwise: a prefix that another replica has saved in host memory counts as reused, and llama-server saves prompts in memory too. With \`prefixReuse: any\` every shared token is reused, as llama-server does it; with the default, \`auto\`, a request while no other one of its model runs, on any replica, reuses whole chunks of 256 tokens only. So with \`auto\` more is reused the busier the machine is. Of one engine: with the same setting. The goal is ${GOAL} of what one engine reuses.`,
  ],
  rows,
  conclusions: [
    `Four replicas reuse ${(reusedBy(OURS, 'any') / reusedBy(ONE, 'any')).toFixed(3)} of what one engine with all seats does; with \`auto\` ${(reusedBy(OURS, 'auto') / reusedBy(ONE, 'auto')).toFixed(3)}.`,
  ],
});
process.exit(0);
