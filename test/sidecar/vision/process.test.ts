/** A vision process from fork to exit, with a stand-in that speaks its protocol. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import t, { type Test } from 'tap';
import type { VisionSetup } from '../../../engine/protocol/vision-messages.js';
import { VisionProcess, type VisionEnd } from '../../../sidecar/vision/process.js';
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
      message: ({ kind }: { kind: string }) => seen.resolve(kind),
      gone: (why: VisionEnd) => ended.resolve(why),
    };
    this.process = new VisionProcess(setup, this.clock, events, entry);
    t.teardown(() => this.process.kill('closed'));
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

t.test('one that ends, and one that cannot be started', async (t) => {
  t.equal(await new Subject(t, { start: 'exit' }).gone, 'died');
  t.equal(await new Subject(t, {}, {}, '/no/such/module.js').gone, 'died');
});

t.test('its environment and its descriptors have nothing of the sidecar’s', async (t) => {
  process.env['RA_SECRET_TOKEN'] = 'secret';
  t.teardown(() => delete process.env['RA_SECRET_TOKEN']);
  const subject = new Subject(t, {}, { device: 'GPU-1' });
  await subject.first;
  const { pid } = subject.process;
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
