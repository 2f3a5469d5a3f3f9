/** A vision process from fork to exit, with a stand-in that speaks its protocol. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { VISION_VERSION as v, type VisionSetup } from '../../../engine/protocol/vision-messages.js';
import {
  MOST_EMBEDDING_BYTES,
  MOST_PARTS,
  MOST_TEXT_TOKENS,
  readVisionMessage,
  VisionProcess,
  type VisionEnd,
} from '../../../sidecar/vision/process.js';
import { FakeClock } from '../../support/fake-clock.js';
import { stubProjector, VISION_STUB, type VisionScript } from '../../support/vision-script.js';

class Deferred<T> {
  readonly promise: Promise<T>;
  resolve: (value: T) => void = () => undefined;

  constructor() {
    this.promise = new Promise((resolve) => (this.resolve = resolve));
  }
}

class Subject {
  readonly clock = new FakeClock();
  readonly process: VisionProcess;
  /** Of its first message. */
  readonly first: Promise<string>;
  /** Of all its messages. */
  readonly heard: string[] = [];
  readonly gone: Promise<VisionEnd>;

  constructor(t: Test, script: VisionScript = {}, more: Partial<VisionSetup> = {}, entry = VISION_STUB) {
    const setup: VisionSetup = {
      file: 'm',
      projector: stubProjector(script),
      threads: 1,
      maxPixels: 1,
      cacheBytes: 0,
      heartbeatMs: 5,
      maxAgeMs: 1000,
      gpu: false,
      ...more,
    };
    const seen = new Deferred<string>();
    const ended = new Deferred<VisionEnd>();
    this.first = seen.promise;
    this.gone = ended.promise;
    const events = {
      message: ({ kind }: { kind: string }) => {
        this.heard.push(kind);
        seen.resolve(kind);
      },
      ended: (why: VisionEnd) => ended.resolve(why),
    };
    this.process = new VisionProcess(setup, this.clock, events, entry);
    t.teardown(() => this.process.child.close());
  }
}

t.test('one that sends nothing is killed', async (t) => {
  const subject = new Subject(t, { deaf: true });
  t.equal(await subject.first, 'ready');
  subject.clock.advance(29_999);
  subject.process.send({ kind: 'layout', id: 1, size: { width: 1, height: 1 } });
  subject.clock.advance(1);
  t.equal(await subject.gone, 'hang');
});

t.test('one that does not get ready is killed', async (t) => {
  const subject = new Subject(t, { start: 'silent', deaf: true });
  subject.clock.advance(300_000);
  t.equal(await subject.gone, 'start-timeout');
});

t.test('one of another version is killed', async (t) => {
  t.equal(await new Subject(t, { start: 'wrong-version' }).gone, 'protocol');
});

const confinement = { filtered: true, bounded: true, ownUser: false };
const facts = { projectorVersion: 'x', whole: false, confinement };
const unable = { kind: 'unable', reason: 'no such file', mayMend: false };
const text = { kind: 'tokens', tokens: Uint32Array.of(7) };
const places = { kind: 'embeddings', count: 6, positions: 3, columns: 2 };
const layout = (...parts: unknown[]): object => ({ kind: 'layout', id: 1, parts });
const encoded = (...embeddings: unknown[]): object => ({ kind: 'encoded', id: 1, embeddings });

t.test('every message of the protocol is read, as the same object', async (t) => {
  const messages: readonly object[] = [
    { kind: 'ready', facts },
    unable,
    layout(text, places, { ...places, positions: 6, columns: 0 }, text),
    encoded(new Float32Array(6), new Float32Array(0)),
    { kind: 'refused', id: 0, why: 'undecodable' },
    { kind: 'refused', id: 0, why: 'failed' },
    { kind: 'heartbeat' },
  ];
  for (const message of messages) {
    const sent = { v, ...message };
    t.equal(readVisionMessage(sent), sent);
  }
});

/** Each is what JSON can represent, so that the stand-in can send it. */
const MALFORMED: readonly object[] = [
  { kind: 'other' },
  { kind: 'layout', id: 1 },
  { kind: 'layout', id: 1, parts: { length: 1 } },
  { ...layout(places), id: -1 },
  layout(null),
  layout({ ...text, tokens: [-1] }),
  layout({ ...places, count: 0 }),
  layout({ ...places, count: 1e300 }),
  layout({ ...places, positions: 7 }),
  layout({ ...places, columns: 7 }),
  layout({ ...places, columns: 0 }),
  layout({ ...places, kind: 'audio' }),
  layout(...Array.from({ length: MOST_PARTS + 1 }, () => places)),
  { kind: 'encoded', id: 1 },
  { ...encoded(), id: '1' },
  encoded([0.5]),
  { kind: 'refused', id: 1, why: 'other' },
  { kind: 'refused', why: 'failed' },
];

t.test('anything else is not', async (t) => {
  const all: readonly object[] = [
    ...MALFORMED,
    { kind: 'ready' },
    { kind: 'ready', facts: { ...facts, projectorVersion: 1 } },
    { kind: 'ready', facts: { ...facts, projectorVersion: 'x'.repeat(65) } },
    { kind: 'ready', facts: { ...facts, whole: undefined } },
    { kind: 'ready', facts: { ...facts, confinement: null } },
    { kind: 'ready', facts: { ...facts, confinement: { ...confinement, ownUser: 1 } } },
    { ...unable, reason: ['x'] },
    { ...unable, reason: 'x'.repeat(8193) },
    { ...unable, mayMend: 'yes' },
    layout({ ...text, tokens: Float32Array.of(1) }),
    layout({ ...text, tokens: new Uint32Array(MOST_TEXT_TOKENS) }, text),
    encoded(Float64Array.of(1)),
    encoded(new Float32Array(MOST_EMBEDDING_BYTES / 4), Float32Array.of(1)),
  ];
  for (const message of all) t.equal(readVisionMessage({ v, ...message }), undefined);
  for (const raw of [undefined, null, 'heartbeat', { kind: 'heartbeat' }, { v: v + 1, kind: 'heartbeat' }])
    t.equal(readVisionMessage(raw), undefined);
});

t.test('no value makes the reader throw', async () => {
  fc.assert(
    fc.property(fc.anything({ withTypedArray: true, withNullPrototype: true }), (raw) => {
      readVisionMessage(raw);
      readVisionMessage(typeof raw === 'object' ? { ...raw, v } : raw);
      readVisionMessage({ v, kind: 'ready', facts: raw });
      for (const list of [raw, [raw]]) {
        readVisionMessage({ v, kind: 'layout', id: 1, parts: list });
        readVisionMessage({ v, kind: 'encoded', id: 1, embeddings: list });
      }
    }),
  );
});

t.test('one that sends what is no message of the protocol is killed, and nothing more of it is heard', async (t) => {
  for (const message of MALFORMED) {
    const subject = new Subject(t, { says: [message, { kind: 'refused', id: 1, why: 'failed' }] });
    t.equal(await subject.gone, 'protocol', JSON.stringify(message).slice(0, 80));
    t.strictSame(subject.heard, ['ready']);
  }
});

t.test('one that answers its start twice, or something else before it, is killed', async (t) => {
  for (const message of [{ kind: 'ready', facts }, unable]) {
    const subject = new Subject(t, { says: [message] });
    t.equal(await subject.gone, 'protocol', message.kind);
    t.strictSame(subject.heard, ['ready']);
  }
  const early = new Subject(t, { start: 'silent', says: [{ kind: 'refused', id: 1, why: 'failed' }] });
  t.equal(await early.gone, 'protocol');
  t.strictSame(early.heard, []);
});

t.test('one that ends, and one that cannot be started', async (t) => {
  t.equal(await new Subject(t, { start: 'exit' }).gone, 'died');
  t.equal(await new Subject(t, {}, {}, '/no/such/module.js').gone, 'died');
});

t.test('its environment and its descriptors have nothing of the sidecar’s', async (t) => {
  process.env['RA_SECRET_TOKEN'] = 'secret';
  t.teardown(() => delete process.env['RA_SECRET_TOKEN']);
  const subject = new Subject(t, {}, { device: 'GPU-1' });
  await subject.first;
  const { pid } = subject.process.child;
  const names = readFileSync(`/proc/${pid}/environ`, 'utf8')
    .split('\0')
    .filter(Boolean)
    .map((entry) => entry.slice(0, entry.indexOf('=')));
  const known = [
    'CUDA_MODULE_LOADING',
    'CUDA_VISIBLE_DEVICES',
    'LANG',
    'LD_LIBRARY_PATH',
    'PATH',
    'TZ',
    'UV_THREADPOOL_SIZE',
  ];
  t.strictSame(
    names.filter((name) => !known.includes(name)),
    [],
  );
  t.ok(names.includes('CUDA_VISIBLE_DEVICES'), 'the GPU that it may see');
  const open = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  const files = open.filter((path) => path.startsWith('/') && !path.startsWith('/dev/'));
  t.strictSame(files, [], 'no file is open');
});
