import t from 'tap';
import type { VisionSetup } from '../../../engine/protocol/vision-messages.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import { Backoff } from '../../../sidecar/lib/clock.js';
import { VisionClient, type Encoded, type EncodeTask } from '../../../sidecar/vision/client.js';
import type { VisionEnd, VisionMessage, VisionProcessEvents, VisionRequest } from '../../../sidecar/vision/process.js';
import { FakeClock } from '../../support/fake-clock.js';
import { RecordingLog } from '../../support/in-process.js';

const SETUP: VisionSetup = {
  file: 'm',
  projector: 'p',
  threads: 1,
  maxPixels: 1,
  cacheBytes: 0,
  heartbeatMs: 1000,
  maxAgeMs: 1000,
  gpu: false,
};
const SIZE = { width: 3, height: 4 };
const confinement = { filtered: true, bounded: true, ownUser: false };
const task = (of: number): EncodeTask => ({
  digest: new Uint8Array(32).fill(of),
  scope: 's',
  bytes: Uint8Array.of(of),
  size: SIZE,
  shrunk: SIZE,
});

/** A process that the test controls. */
class FakeProcess {
  readonly child: {
    pid: number;
    exited: Promise<void>;
    kill: (end: { reason: string }) => void;
    close: () => Promise<void>;
  };
  exit: () => void = () => undefined;
  readonly sent: VisionRequest[] = [];
  readonly #events: VisionProcessEvents;
  gone = false;
  /** It does not exit although it was killed. */
  isStuck = false;

  constructor(events: VisionProcessEvents) {
    this.#events = events;
    const exited = new Promise<void>((resolve) => (this.exit = resolve));
    this.child = {
      pid: 1,
      exited,
      kill: ({ reason }) => {
        if (!this.gone) this.end(reason as VisionEnd);
      },
      close: () => {
        this.gone = true;
        this.exit();
        return exited;
      },
    };
  }

  send(message: VisionRequest): void {
    this.sent.push(message);
  }

  /** Its end is reported, and it has exited. */
  end(why: VisionEnd = 'died'): void {
    this.gone = true;
    this.#events.ended(why);
    if (!this.isStuck) this.exit();
  }

  says(answer: VisionMessage): void {
    this.#events.message(answer);
  }

  ready(): void {
    this.says({ kind: 'ready', facts: { projectorVersion: 'x', whole: false, confinement } });
  }

  get encodes(): readonly number[] {
    return this.sent.flatMap((message) => (message.kind === 'encode' ? [message.task.bytes[0] ?? -1] : []));
  }

  /** Answers the last message. */
  answers(answer: 'encoded' | 'undecodable'): void {
    const last = this.sent.at(-1);
    const id = last && 'id' in last ? last.id : 0;
    if (answer === 'encoded') this.says({ kind: 'encoded', id, embeddings: [Float32Array.of(id)] });
    else this.says({ kind: 'refused', id, why: 'undecodable' });
  }
}

class Subject {
  readonly clock = new FakeClock();
  readonly log = new RecordingLog();
  readonly processes: FakeProcess[] = [];
  readonly client: VisionClient;

  constructor() {
    this.client = new VisionClient({
      setup: SETUP,
      clock: this.clock,
      log: this.log,
      model: 'm',
      backoff: new Backoff(100, 1000, () => 0),
      fork: (_, __, events) => {
        const made = new FakeProcess(events);
        this.processes.push(made);
        return made;
      },
    });
    this.client.start();
  }

  /** The next process is started once the last one has exited. */
  async later(ms: number): Promise<void> {
    this.clock.advance(ms);
    await new Promise((done) => setImmediate(done));
  }

  get process(): FakeProcess {
    const last = this.processes.at(-1);
    if (!last) throw new Error('none was started');
    return last;
  }
}

const kindOf = async (result: Promise<Encoded>): Promise<string> => (await result).kind;

t.test('until it is ready there is no layout, and images wait', async (t) => {
  const { client, process } = new Subject();
  t.same(await client.layout(SIZE), { kind: 'unavailable' });
  const encoding = client.encode(task(1), 'a');
  t.same(process.encodes, []);
  process.ready();
  t.same(process.encodes, [1]);
  process.answers('encoded');
  t.equal(await kindOf(encoding.result), 'encoded');
});

t.test('a layout is requested once', async (t) => {
  const { client, process } = new Subject();
  process.ready();
  const both = [client.layout(SIZE), client.layout({ ...SIZE })];
  t.equal(process.sent.length, 1);
  const id = process.sent[0]?.kind === 'layout' ? process.sent[0].id : 0;
  process.says({ kind: 'layout', id, parts: [] });
  t.same(await Promise.all(both), [
    { kind: 'layout', parts: [] },
    { kind: 'layout', parts: [] },
  ]);
  await client.layout(SIZE);
  t.equal(process.sent.length, 1);
  const refused = client.layout({ width: 1, height: 1 });
  process.says({ kind: 'refused', id: id + 1, why: 'failed' });
  t.same(await refused, { kind: 'failed' });
});

t.test('one image at a time; images that are no longer needed are skipped', async (t) => {
  const { client, process } = new Subject();
  process.ready();
  const all = [1, 2, 3].map((of) => client.encode(task(of), 'a'));
  t.same(process.encodes, [1]);
  all[1]?.cancel();
  process.answers('undecodable');
  t.equal(await kindOf((all[0] as { result: Promise<Encoded> }).result), 'undecodable');
  t.same(process.encodes, [1, 3]);
});

t.test('accounts take turns, whatever the scope of their cache', async (t) => {
  const { client, process, clock } = new Subject();
  process.ready();
  for (const of of [1, 2, 3]) void client.encode(task(of), 'a');
  const left = client.encode(task(4), 'b');
  void client.encode(task(5), 'b');
  void client.encode(task(6), 'c');
  left.cancel();
  for (let i = 0; i < 4; i += 1) {
    clock.advance(1000);
    process.answers('encoded');
  }
  t.same(process.encodes, [1, 5, 6, 2, 3], 'the account whose image was encoded first is last');
});

t.test('images that are no longer needed do not take the place of others', async (t) => {
  const { client, process } = new Subject();
  process.ready();
  const running = client.encode(task(1), 'a');
  for (let i = 0; i < 5000; i += 1) client.encode(task(2), 'a').cancel();
  const last = client.encode(task(3), 'a');
  process.answers('encoded');
  t.equal(await kindOf(running.result), 'encoded');
  t.same(process.encodes, [1, 3]);
  process.answers('encoded');
  t.equal(await kindOf(last.result), 'encoded');
});

t.test('images that wait fail once a process ends before it is ready', async (t) => {
  const subject = new Subject();
  const { client, process } = subject;
  process.ready();
  const [first, second] = [client.encode(task(1), 'a'), client.encode(task(2), 'a')];
  process.end();
  t.equal(await kindOf(first.result), 'failed');
  await subject.later(100);
  t.equal(subject.processes.length, 2);
  subject.process.end();
  t.equal(await kindOf(second.result), 'failed');
});

t.test('if it ends, its current image fails and no other', async (t) => {
  const subject = new Subject();
  const { client, process } = subject;
  process.ready();
  const [first, second] = [client.encode(task(1), 'a'), client.encode(task(2), 'a')];
  process.end();
  t.equal(await kindOf(first.result), 'failed');
  t.equal(client.state, 'cold');
  t.equal(client.readyInMs > 0, true);
  await subject.later(100);
  t.equal(subject.processes.length, 2);
  subject.process.ready();
  t.same(subject.process.encodes, [2]);
  subject.process.answers('encoded');
  t.equal(await kindOf(second.result), 'encoded');
});

t.test('a size that ends it fails; others are requested again', async (t) => {
  const { client, process } = new Subject();
  process.ready();
  const counted = client.layout(SIZE);
  const other = client.layout({ width: 9, height: 9 });
  process.end();
  t.same(await counted, { kind: 'failed' });
  t.same(await other, { kind: 'unavailable' });
});

t.test('an image that hangs is ended with its process', async (t) => {
  const subject = new Subject();
  const { client, process, clock } = subject;
  process.ready();
  const hung = client.encode(task(1), 'a');
  clock.advance(299_999);
  t.notOk(process.gone);
  clock.advance(1);
  t.ok(process.gone);
  t.equal(await kindOf(hung.result), 'failed');
  await subject.later(1000);
  t.equal(subject.processes.length, 2);
});

t.test(
  'one that was killed and does not exit fails its image at once, and the next one waits for its exit',
  async (t) => {
    const subject = new Subject();
    const { client, process, clock } = subject;
    process.isStuck = true;
    process.ready();
    const hung = client.encode(task(1), 'a');
    clock.advance(300_000);
    t.equal(await kindOf(hung.result), 'failed');
    await subject.later(100_000);
    t.equal(subject.processes.length, 1, 'its memory is not free yet');
    process.exit();
    await subject.later(0);
    t.equal(subject.processes.length, 2);
  },
);

t.test('what a closed account left is dropped, and what its waiting images leave in a later process', async (t) => {
  const subject = new Subject();
  const { client, process } = subject;
  process.ready();
  client.forget('first');
  t.same(process.sent, [{ kind: 'forget', scope: 'first' }]);
  process.end();
  client.forget('second');
  client.forget(ALL_ACCOUNTS);
  void client.encode({ ...task(1), scope: 'second' }, 'a');
  await subject.later(1000);
  t.equal(subject.processes.length, 2);
  t.same(subject.process.sent, [], 'not before it is ready');
  subject.process.ready();
  t.match(subject.process.sent, [
    { kind: 'forget', scope: 'first' },
    { kind: 'forget', scope: 'second' },
    { kind: 'encode' },
  ]);
  t.equal(subject.process.sent.length, 3, 'in a new process there is nothing of all accounts');
});

t.test('an answered image leaves no timer', async (t) => {
  const { client, process, clock } = new Subject();
  process.ready();
  const encoding = client.encode(task(1), 'a');
  process.answers('encoded');
  await encoding.result;
  t.equal(clock.pending, 0);
});

t.test('with an invalid projector it is not restarted', async (t) => {
  const subject = new Subject();
  const { client, process, clock } = subject;
  const encoding = client.encode(task(1), 'a');
  process.says({ kind: 'unable', reason: 'r', mayMend: false });
  process.end();
  t.equal(client.state, 'lost');
  t.match(JSON.stringify(subject.log), '"reason":"r"');
  t.equal(await kindOf(encoding.result), 'failed');
  t.equal(await kindOf(client.encode(task(2), 'a').result), 'failed');
  clock.advance(100_000);
  t.equal(subject.processes.length, 1);
});

t.test('a start that fails for a cause that may pass is tried again, also after later ones', async (t) => {
  const subject = new Subject();
  const { client, log } = subject;
  const waiting = client.encode(task(1), 'a');
  for (const started of [1, 2, 3]) {
    t.equal(subject.processes.length, started);
    subject.process.says({ kind: 'unable', reason: 'no memory', mayMend: true });
    subject.process.end();
    t.equal(client.state, 'cold');
    await subject.later(1000);
  }
  t.equal(await kindOf(waiting.result), 'failed', 'its request holds a seat');
  subject.process.ready();
  t.equal(client.state, 'ready');
  subject.process.end();
  const lost = log.lines.filter(({ event }) => event === 'vision lost');
  t.same(
    lost.map(({ reason }) => reason),
    [...Array<string>(3).fill('unable: no memory'), 'died'],
  );
});

t.test('until it is ready takes as long as the last start took', async (t) => {
  const subject = new Subject();
  const { client, clock } = subject;
  clock.advance(8000);
  subject.process.ready();
  t.equal(client.readyInMs, 0);
  subject.process.end();
  t.equal(client.readyInMs, 50 + 8000, 'the wait before it, and the start');
  await subject.later(50);
  clock.advance(3000);
  t.equal(client.readyInMs, 5000);
});

t.test('a process that is not confined is reported', async (t) => {
  const { process, log } = new Subject();
  const open = { ...confinement, filtered: false };
  process.says({ kind: 'ready', facts: { projectorVersion: 'x', whole: false, confinement: open } });
  t.match(JSON.stringify(log), 'vision is not confined');
});

t.test('after close everything fails and nothing is started', async (t) => {
  const subject = new Subject();
  const { client, process, clock } = subject;
  process.ready();
  const encodings = [client.encode(task(1), 'a'), client.encode(task(2), 'a')];
  client.close();
  for (const { result } of encodings) t.equal(await kindOf(result), 'failed');
  t.ok(process.gone);
  clock.advance(100_000);
  t.equal(subject.processes.length, 1);
  client.close();
});
