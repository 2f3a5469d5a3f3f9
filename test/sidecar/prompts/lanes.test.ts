/** Generations of prompt hosts while weights are replaced, on hosts that the test answers for. */
import t from 'tap';
import type { FirstStart } from '../../../sidecar/prompts/client.js';
import { HostPair, type Lane, type LaneHost } from '../../../sidecar/prompts/host-pair.js';
import { PromptLanes } from '../../../sidecar/prompts/lanes.js';
import type { NoResult, OpenBody, Tokenized } from '../../../sidecar/prompts/prompt-maker.js';
import { FakeClock } from '../../support/fake-clock.js';

const OWNER = { account: 'a', weight: 1 };
const NEVER = new AbortController().signal;
const FAILED: NoResult = { kind: 'failed', reason: 'died' };

/** A host whose prompts are made when the test says so. */
class FakeHost implements LaneHost {
  readonly #promptVersion: string;
  readonly #pending: ((result: Tokenized) => void)[] = [];
  closed = false;

  constructor(promptVersion: string) {
    this.#promptVersion = promptVersion;
  }

  ready(): Promise<FirstStart> {
    const promptVersion = this.#promptVersion;
    return Promise.resolve({ kind: 'ready', models: [{ id: 'm', tools: true, system: true, promptVersion }] });
  }

  stats(): ReturnType<LaneHost['stats']> {
    return { up: !this.closed, queued: 0, running: this.#pending.length, restarts: 0 };
  }

  open(): OpenBody {
    return {
      check: () => Promise.resolve(FAILED),
      tokenize: () => new Promise((settle) => this.#pending.push(settle)),
      close: () => undefined,
    };
  }

  close(): void {
    this.closed = true;
    for (const settle of this.#pending.splice(0)) settle(FAILED);
  }

  /** Makes the prompt that has waited longest. */
  make(): void {
    this.#pending.shift()?.({ kind: 'decision', input: new Uint32Array(0), questions: [] });
  }
}

function lanesOf() {
  const hosts: FakeHost[] = [];
  /** Of each pair: a host of this lane has ended. */
  const ends: ((lane: Lane) => void)[] = [];
  const lanes = new PromptLanes(
    { models: [], workers: 1, silenceMs: 1, maxQueued: 1, inlineBytes: 10, clock: new FakeClock() },
    ({ inlineBytes }, restart) => {
      ends.push((lane) => restart('exit', 50, lane));
      const host = new FakeHost(`p${hosts.length}`);
      hosts.push(host);
      return new HostPair({ short: host, long: new FakeHost('') }, inlineBytes);
    },
  );
  const open = (): OpenBody => lanes.open('chat', { bytes: new Uint8Array(1), length: 1 }, OWNER);
  /** Another generation takes the place of the present one. */
  const reload = async (): Promise<void> => {
    await lanes.prepare([]);
    lanes.adopt();
    lanes.settle();
  };
  const closed = (): boolean[] => hosts.map((host) => host.closed);
  return { lanes, hosts, ends, open, reload, closed };
}

t.test('hosts that are not needed any more close with the last prompt that they make', async (t) => {
  const { hosts, open, reload, closed } = lanesOf();
  const [first, second] = [open(), open()];
  const made = first.tokenize(NEVER);
  await reload();
  second.close();
  t.strictSame(closed(), [false, false]);
  hosts[0]?.make();
  t.match(await made, { kind: 'decision' });
  // Its body is still open: one with images stays so until its reply has ended.
  t.strictSame(closed(), [true, false]);
  first.close();
  await reload();
  t.strictSame(closed(), [true, true, false], 'at once without a prompt');
});

t.test('no further ones are started while too many still make prompts', async (t) => {
  const { hosts, open, reload, closed } = lanesOf();
  const made: Promise<Tokenized>[] = [];
  for (let i = 0; i < 3; i += 1) {
    made.push(open().tokenize(NEVER));
    await reload();
  }
  const next = reload();
  await new Promise(setImmediate);
  t.equal(hosts.length, 4);
  hosts[1]?.make();
  await next;
  t.strictSame(closed(), [false, true, false, true, false]);
  hosts[0]?.make();
  hosts[2]?.make();
  t.same(
    (await Promise.all(made)).map(({ kind }) => kind),
    ['decision', 'decision', 'decision'],
    'and no prompt fails for it',
  );
});

t.test('close ends those too that are not needed any more, and no other is started after it', async (t) => {
  const { lanes, hosts, open, reload, closed } = lanesOf();
  const made: Promise<Tokenized>[] = [];
  for (let i = 0; i < 3; i += 1) {
    made.push(open().tokenize(NEVER));
    await reload();
  }
  const waiting = lanes.prepare([]);
  lanes.close();
  t.same(await Promise.all(made), [FAILED, FAILED, FAILED]);
  t.same(await waiting, { kind: 'unable' });
  t.ok(closed().every(Boolean));
  const { length } = hosts;
  t.same(await lanes.prepare([]), { kind: 'unable' });
  t.equal(hosts.length, length);
});

t.test('restarts are counted by lane, of the hosts of all generations', async (t) => {
  const { lanes, ends, reload } = lanesOf();
  const restarts = (): number[] => lanes.states.map((state) => state.restarts);
  ends[0]?.('short');
  ends[0]?.('short');
  ends[0]?.('long');
  await reload();
  t.strictSame(restarts(), [2, 1]);
  ends[1]?.('long');
  t.strictSame(restarts(), [2, 2]);
});
