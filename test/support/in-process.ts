import { EventEmitter, once } from 'node:events';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Caller, Credentials, Denied, Identity } from '../../sidecar/access/identity.js';
import { metricsOf, startApp, type App } from '../../sidecar/app/app.js';
import { Closers } from '../../sidecar/app/closers.js';
import { openIdentities } from '../../sidecar/app/identities.js';
import { loadConfig, type Config } from '../../sidecar/config/config.js';
import type { Scrapers } from '../../sidecar/api/operators.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import type { TraceLimits } from '../../sidecar/telemetry/otlp/traces.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import type { Log, LogFields } from '../../sidecar/telemetry/logger.js';
import type { UsageRecorder } from '../../sidecar/usage/spool.js';
import { STUB_ENTRY } from './engine-harness.js';
import { holdAnswers } from './hold-answers.js';
import { decisionsPart, enginePart } from './llama-servers.js';
import { embeddedTestModel } from './models.js';
import { PATIENT_MS } from './patience.js';
import { untilNextLook } from './processes.js';
import { sharedLanes } from './shared-lanes.js';
import { RawConnection, type RawResponse } from './raw-http.js';
import { STUB_JOB, type StubScript } from './stub-script.js';

export const ACME: Caller = {
  kind: 'caller',
  account: 'acme',
  keyId: 'key-1',
  environment: 'development',
  models: 'all',
  weight: 4,
};

/** `Bearer good` is ACME; a test adds others. Unknown ones are passed to `behind`, if given. */
export class FakeIdentity implements Identity {
  readonly #behind: Identity | undefined;
  /** By Authorization header; an error is thrown. */
  readonly answers = new Map<string | undefined, Caller | Denied | Error>([['Bearer good', ACME]]);

  constructor(behind?: Identity) {
    this.#behind = behind;
  }

  resolve(credentials: Credentials): Promise<Caller | Denied> {
    const answer = this.answers.get(credentials.header('authorization'));
    if (answer instanceof Error) return Promise.reject(answer);
    if (answer) return Promise.resolve(answer);
    return this.#behind?.resolve(credentials) ?? Promise.resolve({ kind: 'denied', code: 'invalid_api_key' });
  }
}

/**
 * The time after which a sample without its value never gets it: then the failure names the sample, unlike tap’s own
 * limit.
 */
const UNTIL_MS = 60_000;

/** Keeps all records, or none; a test sets its health. */
export class FakeSpool implements UsageRecorder {
  readonly #keeps: boolean;
  health: UsageRecorder['health'] = { ok: true };
  readonly records: UsageRecord[] = [];
  /** Throws on such a record, which no spool may do. */
  failOn: UsageRecord['kind'] | undefined;

  constructor(keeps = true) {
    this.#keeps = keeps;
  }

  append(record: UsageRecord): void {
    if (record.kind === this.failOn) throw new Error('no disk');
    if (this.#keeps) this.records.push(record);
  }

  sync(): Promise<boolean> {
    return Promise.resolve(true);
  }

  /** Its records are durable at once. */
  revise(): boolean {
    return false;
  }
}

export interface StubModel {
  readonly id: string;
  readonly kind: 'chat' | 'decision' | 'embedding' | 'rerank';
  readonly seats?: number;
  readonly contextPerSeat?: number;
  readonly replicas?: number;
  readonly cohort?: string;
  readonly vision?: { readonly projector: string; readonly [setting: string]: unknown };
  /** An external server; its engine process is the real one. Absent: a stand-in. */
  readonly engine?: object;
  readonly prefixCache?: object;
  /** Never becomes ready. */
  readonly cold?: boolean;
  /** Numbers of its vectors. Default: those of a stub. */
  readonly width?: number;
}

export interface Options {
  readonly models: readonly StubModel[];
  /** Sections of the configuration, besides those that this harness sets. */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly identity?: FakeIdentity;
  /** False: no usage record and no log line of a request is kept, for benches. */
  readonly keeps?: boolean;
  /** Keys that `identity` does not know are looked up in the configured keys file, which is followed. */
  readonly followsKeys?: boolean;
  /** The secrets of scrapers that may read all metrics on the public listener. */
  readonly scrapers?: Scrapers;
  /** Module that vision processes are forked from; absent: the real one. */
  readonly visionEntry?: string;
  /** Limits of traces besides the settings; `telemetry.otlp` of `config` has the others. */
  readonly traceLimits?: Partial<TraceLimits>;
  /** Receives the records in place of {@link InProcess.spool}. */
  readonly takesRecords?: UsageRecorder;
}

interface Owner {
  teardown(fn: () => Promise<void> | void): void;
}

export interface Line extends LogFields {
  readonly event: string;
  readonly requestId?: string;
}

/**
 * The sidecar as startApp() composes it, in this process, over real sockets and a real prompt host. Only its engines
 * are stubs: a chat job does what its `seed` selects (STUB_JOB), a decision always answers.
 */
export class InProcess {
  readonly app: App;
  readonly identity: FakeIdentity;
  readonly spool: FakeSpool;
  /** The data folder. */
  readonly dir: string;
  readonly #owner: Owner;
  readonly #log: RecordingLog;

  private constructor(
    app: App,
    owner: Owner,
    identity: FakeIdentity,
    { spool, log, dir }: Pick<InProcess, 'spool' | 'dir'> & { readonly log: RecordingLog },
  ) {
    this.app = app;
    this.dir = dir;
    this.#owner = owner;
    this.identity = identity;
    this.spool = spool;
    this.#log = log;
  }

  /** Resolves once all models but the cold ones are ready. */
  static async start(
    t: Owner,
    {
      models,
      config = {},
      identity = new FakeIdentity(),
      followsKeys = false,
      scrapers,
      keeps = true,
      takesRecords,
      traceLimits = {},
      visionEntry,
    }: Options,
  ): Promise<InProcess> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-in-process-'));
    const spool = new FakeSpool(keeps);
    const log = new RecordingLog(keeps);
    const makePrompts = sharedLanes();
    const loaded = await configure(dir, models, config);
    const telemetry = { otlp: { ...loaded.telemetry.otlp, ...traceLimits } };
    const [closers, metrics] = [new Closers(systemClock, log), metricsOf(loaded)];
    const opened = followsKeys
      ? await openIdentities(loaded, metrics, { clock: systemClock, log, closers })
      : undefined;
    if (opened) identity = new FakeIdentity(opened.identity);
    const app = await startApp({ ...loaded, telemetry }, identity, log, {
      ...(opened && { closers, metrics, keysFile: opened.keysFile }),
      spool: takesRecords ?? spool,
      engineEntry: STUB_ENTRY,
      ...(makePrompts && { makePrompts }),
      ...(scrapers && { scrapers }),
      ...(visionEntry !== undefined && { visionEntry }),
    });
    t.teardown(async () => {
      await app.drain();
      await rm(dir, { recursive: true, force: true });
      holdAnswers(log.lines);
    });
    if (!models.some(({ cold }) => cold)) await app.ready();
    for (const { id, cold } of models) {
      if (cold !== true) await log.seen('engine ready', ({ model }) => model === id);
    }
    return new InProcess(app, t, identity, { spool, log, dir: loaded.dataDir });
  }

  /** All log lines so far. */
  get lines(): readonly Line[] {
    return this.#log.lines;
  }

  get port(): number {
    return this.app.publicPort;
  }

  /** A connection that is closed with the test at the latest. */
  async connect(): Promise<RawConnection> {
    const connection = await RawConnection.open(this.port);
    this.#owner.teardown(() => connection.close());
    return connection;
  }

  /** One request on its own connection, and its answer. */
  async ask(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    body?: string,
  ): Promise<RawResponse> {
    const connection = await this.connect();
    const response = await connection.request(method, path, headers, body).response({ head: method === 'HEAD' });
    connection.close();
    return response;
  }

  /** POSTs JSON with the valid key; `headers` replace its headers. */
  post(path: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<RawResponse> {
    return this.ask('POST', path, { ...JSON_HEADERS, ...headers }, JSON.stringify(body));
  }

  /** Starts a request and leaves it open; `body` as for {@link post}. */
  async begin(path: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<RawConnection> {
    const connection = await this.connect();
    return connection.request('POST', path, { ...JSON_HEADERS, ...headers }, JSON.stringify(body));
  }

  /** Resolves with the first log line that fits, existing or later. */
  seen(event: string, fits?: (line: Line) => boolean): Promise<Line> {
    return this.#log.seen(event, fits);
  }

  /** One sample of the operators’ metrics, 0 if there is none. */
  async metric(sample: string): Promise<number> {
    // A histogram's samples have names with a suffix.
    const name = sample.replace(/\{.*$/, '').replace(/_(?:bucket|sum|count)$/, '');
    const page = await (await fetch(`http://127.0.0.1:${this.app.operatorsPort}/metrics?name[]=${name}`)).text();
    const line = page.split('\n').find((text) => text.startsWith(`${sample} `));
    return line === undefined ? 0 : Number(line.slice(sample.length));
  }

  /** Resolves once a sample has a value. No event reports a queue’s length, so it is polled. */
  async until(sample: string, value: number): Promise<void> {
    const from = performance.now();
    for (let looks = 0; ; looks += 1) {
      const seen = await this.metric(sample);
      if (seen === value) return;
      if (performance.now() - from > UNTIL_MS) throw new Error(`${sample} is ${seen} and not ${value}`);
      await untilNextLook(looks);
    }
  }
}

export const JSON_HEADERS = { Authorization: 'Bearer good', 'Content-Type': 'application/json' } as const;

/** A chat body that selects a stub’s behaviour. */
export function chatBody(
  model: string,
  act: keyof typeof STUB_JOB,
  more: Readonly<Record<string, unknown>> = {},
): object {
  return { model, seed: STUB_JOB[act], messages: [{ role: 'user', content: 'Hello.' }], ...more };
}

/** A body for POST /v1/decisions. */
export function decisionBody(model: string, more: Readonly<Record<string, unknown>> = {}): object {
  return { model, input: 'It rains.', questions: [{ id: 'a', type: 'yes_no', question: 'Is it wet?' }], ...more };
}

/** A body for POST /v1/systemone. */
export function systemOneBody(model: string, more: Readonly<Record<string, unknown>> = {}): object {
  return { model, state: 'It rains.', questions: { a: { type: 'noul', instructions: 'Is it wet?' } }, ...more };
}

async function configure(dir: string, models: readonly StubModel[], config: object): Promise<Config> {
  const real = await embeddedTestModel();
  // The stub reads its script from the name, the prompt host the model behind it.
  const link = async (script: StubScript): Promise<string> => {
    const path = join(dir, JSON.stringify(script));
    await symlink(real, path);
    return path;
  };
  const ready = await link({ bySeed: true });
  const wide = new Map<number, string>();
  for (const { width } of models) if (width !== undefined) wide.set(width, await link({ bySeed: true, width }));
  const cold = await link({ start: 'silent' });
  const file = join(dir, 'config.json');
  const settings = {
    listen: { port: 0 },
    operators: { port: 0 },
    dataDir: dir,
    // Whatever a test is about, each answer is checked against its schema.
    development: { validateAnswers: true },
    ...decisionsPart(),
    models: models.map(({ cold: never, width, ...model }) => ({
      seats: 2,
      contextPerSeat: 1024,
      // External servers are used for no other kinds.
      ...(never !== true && ['chat', 'decision'].includes(model.kind) && enginePart(real)),
      ...model,
      file: never === true ? cold : (wide.get(width ?? 0) ?? ready),
    })),
    ...config,
    // Stubs need no memory, and one that never becomes ready must not delay the others.
    // Its cold models never load.
    queue: { waitForLoad: false, ...(config as { queue?: object }).queue },
    engine: { checkMemory: false, ...(config as { engine?: object }).engine },
    prompts: { silenceMs: PATIENT_MS, ...(config as { prompts?: object }).prompts },
  };
  await writeFile(file, JSON.stringify(settings));
  const loaded = loadConfig({ RA_CONFIG: file });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}

/** Keeps all lines, or only those without a request. */
export class RecordingLog implements Log {
  readonly #keepsRequests: boolean;
  readonly lines: Line[] = [];
  readonly #news = new EventEmitter().setMaxListeners(0);
  readonly error = this.#writer();
  readonly warn = this.error;
  readonly info = this.error;
  readonly debug = this.error;

  constructor(keepsRequests = true) {
    this.#keepsRequests = keepsRequests;
  }

  forRequest(requestId: string): Log {
    if (!this.#keepsRequests) return NO_LOG;
    const write = this.#writer(requestId);
    return { error: write, warn: write, info: write, debug: write, forRequest: (id) => this.forRequest(id) };
  }

  async seen(event: string, fits: (line: Line) => boolean = () => true): Promise<Line> {
    for (;;) {
      const found = this.lines.find((line) => line.event === event && fits(line));
      if (found) return found;
      await once(this.#news, 'line');
    }
  }

  #writer(requestId?: string): Log['info'] {
    return (event, fields) => {
      this.lines.push({ event, ...fields, ...(requestId !== undefined && { requestId }) });
      this.#news.emit('line');
    };
  }
}

const NO_LOG: Log = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  debug: () => undefined,
  forRequest: () => NO_LOG,
};
