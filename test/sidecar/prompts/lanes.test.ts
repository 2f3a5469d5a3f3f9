/** Generations of prompt hosts while weights are replaced, on hosts that the test answers for. */
import t from 'tap';
import type { FirstStart, Lane, PromptHostOptions } from '../../../sidecar/prompts/client.js';
import { PromptLanes, type LaneHost } from '../../../sidecar/prompts/lanes.js';
import type { NoResult, OpenBody, Tokenized } from '../../../sidecar/prompts/prompt-maker.js';
import { FakeClock } from '../../support/fake-clock.js';

const OWNER = { account: 'a', weight: 1 };
const NEVER = new AbortController().signal;
const FAILED: NoResult = { kind: 'failed', reason: 'died' };

/** A host whose prompts are made when the test says so. Its bodies close with their prompts. */
class FakeHost implements LaneHost {
  readonly name: Lane;
  readonly models: LaneHost['models'];
  readonly gone: Promise<void>;
  /** Has ended once. */
  readonly restart: () => void;
  readonly #pending: ((result: Tokenized) => void)[] = [];
  #markGone!: () => void;
  #open = 0;
  #retired = false;
  closed = false;

  constructor(promptVersion: string, { hooks, name }: PromptHostOptions) {
    this.name = name;
    this.models = [{ id: 'm', tools: true, system: true, promptVersion }];
    this.gone = new Promise((settle) => (this.#markGone = settle));
    this.restart = () => hooks?.restart?.('exit', 50, name);
  }

  ready(): Promise<FirstStart> {
    return Promise.resolve({ kind: 'ready', models: this.models });
  }

  stats(): ReturnType<LaneHost['stats']> {
    return { up: !this.closed, queued: 0, running: this.#pending.length, restarts: 0 };
  }

  open(): OpenBody {
    this.#open += 1;
    return {
      check: () => Promise.resolve(FAILED),
      tokenize: () => new Promise((settle) => this.#pending.push(settle)),
      close: () => this.#closeBody(),
    };
  }

  retire(): void {
    this.#retired = true;
    if (this.#open === 0) this.close();
  }

  close(): void {
    this.closed = true;
    this.#markGone();
    for (const settle of this.#pending.splice(0)) settle(FAILED);
  }

  /** Makes the prompt that has waited longest. */
  make(): void {
    this.#pending.shift()?.({ kind: 'decision', input: new Uint32Array(0), questions: [] });
    this.#closeBody();
  }

  #closeBody(): void {
    this.#open -= 1;
    if (this.#retired && this.#open === 0) this.close();
  }
}

function lanesOf() {
  /** Of the short lane, and of both, the first pair first. */
  const hosts: FakeHost[] = [];
  const all: FakeHost[] = [];
  const pairs: Record<'short' | 'long', FakeHost>[] = [];
  /** What the model's file says to hosts from now on. */
  const file = { version: 'p0' };
  let short: FakeHost | undefined;
  const lanes = new PromptLanes(
    { models: [], workers: 1, silenceMs: 1, maxQueued: 1, inlineBytes: 10, clock: new FakeClock() },
    (options) => {
      const host = new FakeHost(file.version, options);
      all.push(host);
      if (options.name === 'short') {
        short = host;
        hosts.push(host);
      } else if (short) pairs.push({ short, long: host });
      return host;
    },
  );
  const open = (): OpenBody => lanes.open('chat', { bytes: new Uint8Array(1), length: 1 }, OWNER);
  /** A prompt in each lane. */
  const askAll = (): Promise<Tokenized>[] => {
    const long = { bytes: new Uint8Array(99), length: 99 };
    const bodies = [open(), lanes.open('chat', long, OWNER), lanes.ofBatches.open('chat', long, OWNER)];
    return bodies.map((body) => body.tokenize(NEVER));
  };
  const startNext = (): Promise<FirstStart> => {
    file.version = `p${hosts.length}`;
    return lanes.startNext([]);
  };
  /** Another generation takes the place of the present one. */
  const reload = async (): Promise<void> => {
    await startNext();
    lanes.switchToNext();
    lanes.retireOthers();
  };
  const closed = (): boolean[] => hosts.map((host) => host.closed);
  return { lanes, hosts, all, pairs, file, open, askAll, startNext, reload, closed };
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
  t.strictSame(closed(), [true, false]);
  await reload();
  t.strictSame(closed(), [true, true, false], 'at once without a prompt');
});

t.test('no further ones are started while too many still make prompts', async (t) => {
  const { hosts, all, askAll, reload, closed } = lanesOf();
  const made: Promise<Tokenized>[] = [];
  for (let i = 0; i < 3; i += 1) {
    made.push(...askAll());
    await reload();
  }
  const busy = all.filter((host) => host.stats().running > 0);
  t.equal(busy.length, 9, 'those of three lanes, of each generation');
  const next = reload();
  for (const host of busy.slice(3, 6)) {
    await new Promise(setImmediate);
    t.equal(hosts.length, 4);
    host.make();
  }
  await next;
  t.strictSame(closed(), [false, true, false, true, false]);
  for (const host of busy) host.make();
  t.ok(
    (await Promise.all(made)).every(({ kind }) => kind === 'decision'),
    'and no prompt fails for it',
  );
});

t.test('close ends those too that are not needed any more, and no other is started after it', async (t) => {
  const { lanes, all, askAll, startNext, reload } = lanesOf();
  const made: Promise<Tokenized>[] = [];
  for (let i = 0; i < 3; i += 1) {
    made.push(...askAll());
    await reload();
  }
  const waiting = startNext();
  lanes.close();
  t.same(await Promise.all(made), Array<NoResult>(9).fill(FAILED));
  t.same(await waiting, { kind: 'unable' });
  const { length } = all;
  t.same(await startNext(), { kind: 'unable' });
  askAll();
  t.equal(all.length, length);
  t.ok(all.every(({ closed }) => closed));
});

t.test('batches have a host while they need it, which ends with what it has read', async (t) => {
  const { lanes, all, reload } = lanesOf();
  const line = (): OpenBody => lanes.ofBatches.open('chat', { bytes: new Uint8Array(99), length: 99 }, OWNER);
  const lanesSeen = (): Lane[] => lanes.states.map(({ lane }) => lane);
  t.same(lanesSeen(), ['short', 'long'], 'none before');
  const [first, second] = [line(), line()];
  t.same(lanesSeen(), ['short', 'long', 'batch']);
  const ofBatches = (): boolean[] => all.filter(({ name }) => name === 'batch').map(({ closed }) => closed);
  t.same(ofBatches(), [false]);
  first.close();
  t.ok(lanes.forgetBatches());
  t.same(lanesSeen(), ['short', 'long']);
  t.same(ofBatches(), [false], 'it still has a line');
  const third = line();
  t.same(ofBatches(), [false, false], 'others get another one');
  t.notOk(lanes.forgetBatches(), 'one after another');
  second.close();
  t.same(ofBatches(), [true, false]);
  await new Promise(setImmediate);
  third.close();
  t.ok(lanes.forgetBatches());
  t.same(ofBatches(), [true, true]);
  line();
  await reload();
  t.same(ofBatches(), [true, true, false], 'its line is not made yet');
  t.same(lanesSeen(), ['short', 'long']);
  lanes.close();
  t.same(ofBatches(), [true, true, true]);
});

t.test('restarts are counted by lane, of the hosts of all generations', async (t) => {
  const { lanes, pairs, reload } = lanesOf();
  const restarts = (): number[] => lanes.states.map((state) => state.restarts);
  pairs[0]?.short.restart();
  pairs[0]?.short.restart();
  pairs[0]?.long.restart();
  await reload();
  t.strictSame(restarts(), [2, 1]);
  pairs[1]?.long.restart();
  t.strictSame(restarts(), [2, 2]);
});

t.test('a prompt of another version is made by the hosts that report it, as long as they are there', async (t) => {
  const { lanes, hosts, startNext, reload } = lanesOf();
  const running = (): number[] => hosts.map((host) => host.stats().running);
  const ask = (promptVersion: string): Promise<Tokenized> =>
    lanes.open('chat', { bytes: undefined, length: 1 }, OWNER, { model: 'm', promptVersion }).tokenize(NEVER);
  await startNext();
  void ask('p1');
  void ask('unknown');
  t.strictSame(running(), [1, 1]);
  lanes.switchToNext();
  void ask('p0');
  t.strictSame(running(), [2, 1]);
  await reload();
  void ask('p0');
  t.strictSame(running(), [2, 1, 1]);
});

t.test(
  'a host for batches that has read other files than the others makes no prompts that replicas do not want',
  async (t) => {
    const { lanes, all, file, startNext } = lanesOf();
    const running = (): string[] =>
      all.filter((host) => host.stats().running > 0).map(({ name, models }) => `${name} ${models[0]?.promptVersion}`);
    const ask = (promptVersion?: string): void => {
      const wanted = promptVersion === undefined ? undefined : { model: 'm', promptVersion };
      void lanes.ofBatches.open('chat', { bytes: undefined, length: 99 }, OWNER, wanted).tokenize(NEVER);
    };
    file.version = 'new';
    ask('p0');
    t.strictSame(running(), ['long p0'], 'of new weights that are not loaded');
    ask();
    t.strictSame(running(), ['long p0'], 'nor where no prompt version is asked for');
    ask('new');
    t.strictSame(running(), ['long p0', 'batch new']);
    await startNext();
    ask('p1');
    t.strictSame(running(), ['long p0', 'batch new', 'batch p1'], 'those that agree make them');
  },
);
