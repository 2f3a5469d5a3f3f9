import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { ENDS_WITH_PARENT } from '../../../engine/protocol/process-settings.js';
import {
  childEnvironment,
  ChildProcess,
  confinedEnvironment,
  exitReason,
  HangWatch,
  StderrTail,
  type ChildEnd,
  type ChildOptions,
  type Hang,
} from '../../../sidecar/lib/child-process.js';
import { FakeClock } from '../../support/fake-clock.js';
import { eventually } from '../../support/processes.js';

const LINK = fileURLToPath(new URL('../../../engine/protocol/link.js', import.meta.url));

/** A child that runs `body` once it has its first message. */
class Subject {
  readonly clock = new FakeClock();
  readonly messages: unknown[] = [];
  readonly ends: ChildEnd[] = [];
  readonly ended: Promise<ChildEnd>;
  readonly child: ChildProcess;
  #onMessage: () => void = () => undefined;

  constructor(t: Test, body: string, more: Partial<ChildOptions> = {}) {
    const entry = join(t.testdir(), 'child.mjs');
    const on = `{ message: (message) => { ${body} }, closed: () => globalThis.outlives || process.exit(0) }`;
    writeFileSync(entry, `import { Link } from ${JSON.stringify(LINK)};\nconst link = Link.toParent(${on});`);
    let end: (end: ChildEnd) => void = () => undefined;
    this.ended = new Promise((resolve) => (end = resolve));
    const environment = { PATH: process.env['PATH'] };
    this.child = new ChildProcess(
      { entry, environment, clock: this.clock, startTimeoutMs: 1000, ...more },
      {
        message: (raw) => {
          this.messages.push(raw);
          this.#onMessage();
        },
        ended: (how) => {
          this.ends.push(how);
          end(how);
        },
      },
    );
    t.teardown(() => this.child.close());
    this.child.send({ hello: 1 });
  }

  /** Settles once it has sent so many messages. */
  async heard(count = 1): Promise<void> {
    while (this.messages.length < count) await new Promise<void>((resolve) => (this.#onMessage = resolve));
  }
}

const STAYS = 'setInterval(() => undefined, 1e6); link.send(message);';

t.test('messages go both ways, and its end comes after the last one', async (t) => {
  const { messages, ended, child, clock } = new Subject(t, 'link.send({ got: message }, () => process.exit(7));');
  t.same(await ended, { reason: 'exited', code: 7, signal: null });
  t.same(messages, [{ got: { hello: 1 } }]);
  await child.exited;
  t.equal(clock.pending, 0);
});

t.test('a signal, or none, is one word', async (t) => {
  t.equal(exitReason(null), 'exited');
  t.equal(exitReason('SIGABRT'), 'aborted');
  t.equal(exitReason('SIGSEGV'), 'crashed');
  t.equal(exitReason('SIGBUS'), 'crashed');
  t.equal(exitReason('SIGKILL'), 'killed');
  t.equal(exitReason('SIGTERM'), 'killed');
  const body = `process.stderr.write('GGML_ASSERT(x) failed: a prompt\\n', () => process.abort());`;
  t.same(await new Subject(t, body).ended, { reason: 'aborted', hint: 'assertion', code: null, signal: 'SIGABRT' });
});

t.test('a child whose pipes are kept open by a process that it started has ended within a bound', async (t) => {
  const keeps = `import('node:child_process').then(({ spawn }) => {
    const { pid } = spawn('sleep', ['1000'], { stdio: ['ignore', 'ignore', 2, 3], detached: true });
    link.send({ pid }, () => process.exit(0));
  });`;
  const subject = new Subject(t, keeps);
  const { child, ends, clock, messages } = subject;
  await child.exited;
  t.teardown(() => process.kill((messages[0] as { pid: number }).pid, 'SIGKILL'));
  clock.advance(249);
  t.same(ends, []);
  clock.advance(1);
  t.same(await subject.ended, { reason: 'exited', code: 0, signal: null });
});

t.test('a child that closes its link and does not exit is killed after a bound', async (t) => {
  const subject = new Subject(t, `${STAYS} globalThis.outlives = true; link.close();`);
  const { child, ends, clock } = subject;
  child.started();
  await eventually('its link has ended', () => clock.pending === 1);
  clock.advance(9_999);
  t.same(ends, []);
  clock.advance(1);
  t.match(await subject.ended, { reason: 'hang', detail: 'its link has ended' });
  await child.exited;
});

t.test('one that does not start to work in time is killed, and reported at once', async (t) => {
  const { child, ends, clock } = new Subject(t, STAYS);
  clock.advance(1000);
  t.match(ends, [{ reason: 'start-timeout' }]);
  await child.exited;
  t.equal(ends.length, 1);
});

t.test('a working one that sends nothing is killed', async (t) => {
  const subject = new Subject(t, STAYS, { watch: { hangMs: 800, hasWork: () => false } });
  await subject.heard();
  subject.child.started();
  subject.clock.advance(799);
  t.same(subject.ends, []);
  subject.clock.advance(1);
  t.match(subject.ends, [{ reason: 'hang', detail: 'silent' }]);
  await subject.child.exited;
});

t.test('a kill is reported once, with its own reason, and nothing is heard afterwards', async (t) => {
  const subject = new Subject(t, `${STAYS} setInterval(() => link.send(message), 1);`);
  await subject.heard();
  subject.child.kill({ reason: 'protocol', detail: 'malformed' });
  const { length } = subject.messages;
  subject.child.kill({ reason: 'hang' });
  t.match(subject.ends, [{ reason: 'protocol', detail: 'malformed', code: null, signal: null }]);
  await subject.child.exited;
  t.equal(subject.messages.length, length);
  t.equal(subject.ends.length, 1);
});

t.test('close: with a last message once it works, else by a signal; never reported', async (t) => {
  const obeys = `if (message.bye) process.exit(0); ${STAYS}`;
  const working = new Subject(t, obeys);
  await working.heard();
  working.child.started();
  await working.child.close(60_000, { bye: 1 });
  t.throws(() => process.kill(working.child.pid ?? 0, 0), { code: 'ESRCH' });
  await eventually('its pipes are closed', () => working.clock.pending === 0);

  const deaf = new Subject(t, STAYS);
  await deaf.heard();
  deaf.child.started();
  const closing = deaf.child.close(50, { bye: 1 });
  deaf.clock.advance(50);
  await closing;
  t.throws(() => process.kill(deaf.child.pid ?? 0, 0), { code: 'ESRCH' });

  const starting = new Subject(t, obeys);
  await starting.child.close(60_000, { bye: 1 });
  t.throws(() => process.kill(starting.child.pid ?? 0, 0), { code: 'ESRCH' });
  await starting.child.close();
  for (const { ends } of [working, deaf, starting]) t.same(ends, []);
});

t.test('one that cannot be started is reported, with the code', async (t) => {
  const { child, ended } = new Subject(t, '', { entry: '\0' });
  t.equal(child.pid, undefined);
  t.same(await ended, { reason: 'unstartable', detail: 'ERR_INVALID_ARG_VALUE', code: null, signal: null });
  await child.exited;
});

t.test('its arguments, its limits and its environment are what it is given', async (t) => {
  const body = `link.send({ argv: process.argv.slice(2), exec: process.execArgv, env: process.env });${STAYS}`;
  const limits = 'ulimit -S -s 1234';
  const more = { name: 'a name', nodeArguments: ['--v8-pool-size=1'], limits, environment: { PATH: '/bin', A: 'x' } };
  const subject = new Subject(t, body, more);
  await subject.heard();
  // Where util-linux is there, the kernel ends it with this process; fault/parent-gone.test.ts shows that.
  const argv = ['a name', ...(existsSync('/bin/setpriv') ? [ENDS_WITH_PARENT] : [])];
  t.same(subject.messages[0], { argv, exec: ['--v8-pool-size=1'], env: { PATH: '/bin', A: 'x' } });
  const bounds = readFileSync(`/proc/${subject.child.pid}/limits`, 'utf8');
  t.match(bounds, /^Max core file size +0 /m, 'no core file is written of it');
  t.match(bounds, /^Max stack size +1263616 /m);
});

t.test('a child that computes gets the variables of its libraries, and none of the sidecar’s own', async (t) => {
  const libraries = {
    PATH: '/bin',
    HOME: '/root',
    LC_ALL: 'C',
    NODE_OPTIONS: '--max-old-space-size=99',
    CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
    GGML_VK_VISIBLE_DEVICES: '0',
    OMP_NUM_THREADS: '2',
  };
  const requests = { NODE_EXTRA_CA_CERTS: '/ca.pem' };
  const downloads = { HF_TOKEN: 'token', MODEL_ENDPOINT: 'http://a', https_proxy: 'http://b' };
  const own = {
    RA_CONFIG: '/etc/ra.json',
    DATABASE_PASSWORD: 'secret',
    AWS_SECRET_ACCESS_KEY: 'secret',
    NVIDIA_API_KEY: 'secret',
    LLAMA_API_KEY: 'secret',
    CUDART: 'no family',
  };
  const here = { ...libraries, ...requests, ...downloads, ...own };
  t.strictSame(childEnvironment({}, 'computes', here), libraries);
  t.strictSame(childEnvironment({ A: '2', PATH: '/own' }, 'computes', here), { ...libraries, A: '2', PATH: '/own' });
  t.strictSame(childEnvironment({}, 'requests', here), { ...libraries, ...requests });
  t.strictSame(childEnvironment({}, 'downloads', here), { ...libraries, ...requests, ...downloads });
  t.strictSame(confinedEnvironment({ A: '2' }, here), { PATH: '/bin', A: '2' });
  const homeless = (): never => {
    throw new Error('uv_os_homedir returned ENOENT');
  };
  t.strictSame(childEnvironment({ A: '2' }, 'computes', { PATH: '/bin' }, homeless), {
    PATH: '/bin',
    A: '2',
    HOME: '/nonexistent',
  });
});

t.test('stderr is only searched, across chunks, and its beginning is forgotten', async (t) => {
  const tail = new StderrTail();
  t.equal(tail.hint, undefined);
  tail.add('FATAL ERROR: JavaScript heap ');
  tail.add('out of memory');
  t.equal(tail.hint, 'heap-exhausted');
  tail.add('x'.repeat(10_000));
  t.equal(tail.hint, undefined);
  for (const [text, hint] of [
    ['ggml_cuda: CUDA error: device lost', 'device-error'],
    ['llama.node: libvulkan.so.1: cannot open shared object file: No such file or directory', 'missing-library'],
    ["Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'node-llama-cpp'", 'missing-module'],
  ] as const) {
    const alone = new StderrTail();
    alone.add(text);
    t.equal(alone.hint, hint);
  }
});

const HANG_MS = 800;
const CHECK_MS = HANG_MS / 8;

function watch(hasWork: () => boolean): { clock: FakeClock; watch: HangWatch; hangs: Hang[] } {
  const clock = new FakeClock();
  const hangs: Hang[] = [];
  return { clock, watch: new HangWatch(clock, { hangMs: HANG_MS, hasWork }, (hang) => hangs.push(hang)), hangs };
}

t.test('silence is a hang, whether there is work or not', async (t) => {
  const { clock, hangs } = watch(() => false);
  clock.advance(HANG_MS - 1);
  t.same(hangs, []);
  clock.advance(1);
  t.same(hangs, ['silent']);
  clock.advance(10 * HANG_MS);
  t.same(hangs, ['silent'], 'once');
  t.equal(clock.pending, 0);
});

t.test('messages without progress are a hang only while there is work', async (t) => {
  let hasWork = false;
  const { clock, watch: watched, hangs } = watch(() => hasWork);
  const beat = (times: number): void => {
    for (let i = 0; i < times; i += 1) {
      clock.advance(CHECK_MS / 2);
      watched.heard();
    }
  };
  beat(100);
  t.same(hangs, [], 'idle for long');
  hasWork = true;
  beat(16);
  t.same(hangs, [], 'not before the time is over');
  beat(4);
  t.same(hangs, ['stuck']);
});

t.test('progress is no hang', async (t) => {
  const { clock, watch: watched, hangs } = watch(() => true);
  for (let i = 0; i < 100; i += 1) {
    clock.advance(CHECK_MS);
    watched.heard();
    watched.progressed();
  }
  t.same(hangs, []);
});

t.test('time in which this process was stopped does not count', async (t) => {
  const fake = new FakeClock();
  let stall = 0;
  const clock = { now: () => fake.now() + stall, after: (ms: number, fn: () => void) => fake.after(ms, fn) };
  const hangs: Hang[] = [];
  const watched = new HangWatch(clock, { hangMs: HANG_MS, hasWork: () => true }, (hang) => hangs.push(hang));
  fake.advance(CHECK_MS);
  stall = 20 * HANG_MS;
  fake.advance(CHECK_MS);
  t.same(hangs, []);
  watched.heard();
  watched.progressed();
  fake.advance(2 * HANG_MS);
  t.same(hangs, ['silent'], 'and it still finds one afterwards');
});

t.test('after stop there is no callback', async (t) => {
  const { clock, watch: watched, hangs } = watch(() => true);
  watched.stop();
  clock.advance(10 * HANG_MS);
  t.same(hangs, []);
  t.equal(clock.pending, 0);
});
