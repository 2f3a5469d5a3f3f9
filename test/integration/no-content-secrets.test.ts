/**
 * The operator’s secrets go to the peers that they are for and nowhere else, however a connection to a peer fails: no log,
 * page, error, file, process, event or export has a part of one.
 */
import { createHash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import { Spool } from '../../sidecar/usage/spool.js';
import { chatBody } from '../support/canaries.js';
import { freePort } from '../support/free-port.js';
import { LeakSearch } from '../support/leak-search.js';
import { embeddedTestModel } from '../support/models.js';
import { RetentionWatch } from '../support/retention-watch.js';
import { shortDir } from '../support/short-dir.js';
import { CHAT, Sidecar, unloadedChat, type LogLine } from '../support/sidecar.js';
import { OPTIONS } from '../support/spool-harness.js';
import { usageRecord } from '../support/usage-records.js';

/** In another form than this sidecar’s keys, which the log would redact. */
const secretOf = (name: string): string => createHash('sha256').update(`of the operator: ${name}`).digest('base64url');

/** Between two requests while the peers fail, ms. */
const PAUSE_MS = 20;

/** What a peer does once it has its secret, after it has refused all connections. */
const FAULTS = ['reset', 'garbage', 'echo', 'refusal'] as const;
type Fault = (typeof FAULTS)[number];

const GARBAGE = Buffer.from('ffffffff00fe0d0a', 'hex');

/** What differs between peers. */
interface Protocol {
  /** Sent at once. */
  readonly hello?: string;
  /** The answer that refuses a secret, and quotes it. */
  readonly refusal: (secret: string) => string;
}

const HTTP: Protocol = {
  refusal: (secret) => {
    const body = JSON.stringify({ error: { message: secret } });
    const head = `HTTP/1.1 401 ${secret}\r\nX-Why: ${secret}\r\nContent-Type: application/json\r\nConnection: close`;
    return `${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  },
};

const NATS: Protocol = {
  hello:
    'INFO {"server_id":"peer","version":"2.9.10","proto":1,"headers":true,"max_payload":65536,"jetstream":true}\r\n',
  refusal: (secret) => `-ERR 'Authorization Violation: ${secret}'\r\n`,
};

/** One that is sent a secret. At first nothing listens at its port. */
class Peer {
  readonly port: number;
  readonly secret: string;
  #received = '';
  #fault: Fault = 'reset';
  #failed = 0;
  readonly #protocol: Protocol;
  readonly #news = new EventEmitter();

  private constructor(port: number, secret: string, protocol: Protocol) {
    this.port = port;
    this.secret = secret;
    this.#protocol = protocol;
  }

  static async of(name: string, protocol = HTTP): Promise<Peer> {
    return new Peer(await freePort(), secretOf(name), protocol);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** All that it was sent, but for its own secret. */
  get others(): string {
    return this.#received.replaceAll(this.secret, '');
  }

  async listen(t: Test): Promise<void> {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      if (this.#protocol.hello !== undefined) socket.write(this.#protocol.hello);
      socket.on('data', (request) => {
        this.#received += request.toString('latin1');
        if (!request.includes(this.secret)) return;
        if (this.#fault === 'reset') socket.resetAndDestroy();
        else socket.end(this.#answer(request));
        this.#failed += 1;
        this.#news.emit('failed');
      });
    });
    await once(server.listen(this.port, '127.0.0.1'), 'listening');
    t.teardown(() => server.close());
  }

  #answer(request: Buffer): Buffer | string {
    if (this.#fault === 'refusal') return this.#protocol.refusal(this.secret);
    return this.#fault === 'echo' ? request : GARBAGE;
  }

  /** Waits until it has failed twice in this way: the sidecar has dealt with the first failure by then. */
  async fails(fault: Fault): Promise<void> {
    this.#fault = fault;
    const until = this.#failed + 2;
    while (this.#failed < until) await once(this.#news, 'failed');
  }
}

/** The files of secrets, in their own folder, and a spool with one event that is not delivered. */
class Setup {
  readonly dataDir: string;
  readonly #dir: string;
  readonly #files = new Map<string, string>();

  private constructor(t: Test) {
    this.dataDir = t.testdir();
    this.#dir = shortDir(t);
  }

  static async in(t: Test): Promise<Setup> {
    const setup = new Setup(t);
    const opened = await Spool.open(join(setup.dataDir, 'usage'), OPTIONS, { clock: systemClock });
    if (opened.kind !== 'open') throw new Error('held');
    for (const kind of ['open', 'close'] as const) opened.spool.append(usageRecord('a', kind));
    await opened.spool.close();
    return setup;
  }

  /** A file with a secret, as it is or in a form that has it in it. */
  async file(name: string, secret: string, text = secret): Promise<string> {
    const path = join(this.#dir, name);
    this.#files.set(path, secret);
    await writeFile(path, `${text}\n`);
    return path;
  }

  async spoil(): Promise<void> {
    for (const [path, secret] of this.#files) await writeFile(path, `${secret} ${secret}\n`);
  }

  async remove(): Promise<void> {
    for (const path of this.#files.keys()) await rm(path);
  }
}

const OPERATORS = secretOf('operators');
/** Each attempt follows the last one at once, and none waits long. */
const DELIVERY = { maxAgeMs: 0, backoffMinMs: 1, backoffMaxMs: 20, timeoutMs: 500 };

/** What an operator reads with the key, and what others are answered. */
async function read(watch: RetentionWatch, { operatorsPort }: Sidecar): Promise<void> {
  for (const page of ['/metrics', '/admission', '/readyz', '/healthz']) {
    const url = `http://127.0.0.1:${operatorsPort}${page}`;
    const answer = await fetch(url, { headers: { authorization: `Bearer ${OPERATORS}` } });
    watch.saw('pages', JSON.stringify([...answer.headers]), await answer.text());
    watch.saw('errors', await (await fetch(url, { headers: { authorization: `Bearer ${OPERATORS}x` } })).text());
  }
}

/** Waits for a line of the log, from now on. */
function next(sidecar: Sidecar, event: string, where: (line: LogLine) => boolean = () => true): Promise<void> {
  const from = sidecar.lines.length;
  return sidecar.until(() => sidecar.lines.slice(from).some((line) => line.event === event && where(line)), event);
}

const unreadable = ({ reason }: LogLine): boolean => reason === 'FileProblem';

/** Searches all that left a sidecar, which has ended. */
async function search(t: Test, watch: RetentionWatch, setup: Setup, secrets: readonly string[]): Promise<void> {
  await watch.files(setup.dataDir);
  for (const place of ['stdout', 'stderr', 'pages', 'errors', 'files', 'events', 'processes'] as const) {
    t.ok(watch.places.includes(place), place);
  }
  t.same(watch.leaks(new LeakSearch(secrets)), []);
}

t.test('a sink, an authorizer, an OTLP endpoint and a server of a model, each over HTTP', async (t) => {
  const sink = await Peer.of('sink');
  const authorizer = await Peer.of('authorizer');
  const otlp = await Peer.of('otlp');
  const server = await Peer.of('server');
  const setup = await Setup.in(t);
  const watch = new RetentionWatch();
  const secretFile = await setup.file('server', server.secret);
  const keys = {
    authorizer: await setup.file('authorizer', authorizer.secret),
    operators: await setup.file('operators', OPERATORS),
  };
  const sidecar = await Sidecar.start(t, {
    // Its only model never is ready.
    early: true,
    config: {
      dataDir: setup.dataDir,
      models: [
        {
          id: CHAT,
          kind: 'chat',
          file: await embeddedTestModel(),
          seats: 1,
          contextPerSeat: 2048,
          engine: { kind: 'vllm', url: server.url, secretFile },
        },
      ],
      access: { mode: 'authorizer' },
      authorizer: {
        url: authorizer.url,
        secretFile: keys.authorizer,
        timeoutMs: 500,
        breaker: { failures: 1, openMs: 1 },
      },
      operators: { host: '127.0.0.1', port: 0, secretFile: keys.operators },
      delivery: { ...DELIVERY, url: sink.url, secretFile: await setup.file('sink', sink.secret) },
      telemetry: {
        otlp: {
          endpoint: otlp.url,
          headersFile: await setup.file('otlp', otlp.secret, `authorization: Bearer ${otlp.secret}`),
          metricsIntervalMs: 100,
          timeoutMs: 500,
        },
      },
      log: { level: 'trace' },
    },
  });
  const codes = new Set<string>();
  const ask = async (): Promise<void> => {
    const key = secretOf('a caller');
    codes.add((await watch.refused(await sidecar.post('/chat/completions', chatBody(), { key }))).code);
  };

  await ask();
  await sidecar.logged('usage delivery waits', 1, ({ reason }) => reason === 'ECONNREFUSED');
  await sidecar.logged('otlp export fails');
  await read(watch, sidecar);

  const peers = [sink, authorizer, otlp, server];
  for (const peer of peers) await peer.listen(t);
  for (const fault of FAULTS) {
    // A server that refuses its key ends the start: that comes last.
    const failing = peers.filter((peer) => peer !== server || fault !== 'refusal');
    const all = { failed: false };
    const failed = Promise.all(failing.map((peer) => peer.fails(fault))).then(() => (all.failed = true));
    // The authorizer is asked by callers only.
    while (!all.failed) {
      await ask();
      await wait(PAUSE_MS);
    }
    await failed;
    await read(watch, sidecar);
  }
  for (const change of [() => setup.spoil(), () => setup.remove()]) {
    const noticed = Object.values(keys).map((file) =>
      next(sidecar, 'secrets cannot be read, the previous ones stay in force', (line) => line['file'] === file),
    );
    noticed.push(next(sidecar, 'usage delivery waits', unreadable));
    await change();
    sidecar.child.kill('SIGHUP');
    await Promise.all(noticed);
    await ask();
    await read(watch, sidecar);
  }
  t.same([...codes], ['gateway_unavailable']);
  watch.processes(sidecar.pid);
  void server.fails('refusal');
  t.same(await sidecar.exited(), { code: 1, signal: null });
  t.match(sidecar.printed, 'engine.secretFile has no key that it accepts');
  watch.output(sidecar);
  watch.saw('events', sink.others);
  watch.saw('otlp', otlp.others);
  watch.saw('errors', authorizer.others, server.others);
  await search(t, watch, setup, [OPERATORS, ...peers.map(({ secret }) => secret)]);
});

t.test('a login at NATS', async (t) => {
  const peer = await Peer.of('nats', NATS);
  const setup = await Setup.in(t);
  const watch = new RetentionWatch();
  const secretFile = await setup.file('login', peer.secret, `edge:${peer.secret}`);
  const sidecar = await Sidecar.start(t, {
    config: {
      ...(await unloadedChat()),
      dataDir: setup.dataDir,
      operators: { host: '127.0.0.1', port: 0, secretFile: await setup.file('operators', OPERATORS) },
      delivery: { ...DELIVERY, nats: { servers: [`nats://127.0.0.1:${peer.port}`], auth: 'password', secretFile } },
      log: { level: 'trace' },
    },
  });
  await sidecar.logged('usage delivery waits');
  await peer.listen(t);
  for (const fault of FAULTS) await peer.fails(fault);
  for (const change of [() => setup.spoil(), () => setup.remove()]) {
    const noticed = next(sidecar, 'usage delivery waits', unreadable);
    await change();
    await noticed;
  }
  await read(watch, sidecar);
  watch.processes(sidecar.pid);
  sidecar.child.kill('SIGTERM');
  t.same(await sidecar.exited(), { code: 0, signal: null });
  watch.output(sidecar);
  watch.saw('events', peer.others);
  await search(t, watch, setup, [OPERATORS, peer.secret]);
});
