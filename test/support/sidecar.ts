import { spawn, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { holdAnswers } from './hold-answers.js';
import { embeddedTestModel } from './models.js';
import { PATIENT_MS } from './patience.js';
import { signalGroup, untilNextLook } from './processes.js';
import { stubEnvironment, stubModel } from './stub-node.js';

const CLI = fileURLToPath(new URL('../../sidecar/cli.js', import.meta.url));

/** Long enough for a loaded machine; a start that takes longer fails the test with the output so far. */
const START_MS = 240_000;

/** One line of the sidecar's log. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly event: string };

export interface StartOptions {
  /** Settings as in the configuration file; at the top level they replace this harness’s defaults key by key. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Of both models, unless `config` names models; that of {@link embeddedTestModel} unless given. */
  readonly file?: string;
  /** Seats of the chat model, unless `config` names models. */
  readonly seats?: number;
  /** Tokens of one seat of the chat model; with a long context replies are long. */
  readonly contextPerSeat?: number;
  /** Resolve as soon as the listener answers, while the models still load. */
  readonly early?: boolean;
  /** Engines are stubs: each reply is a token every STEADY_MS up to its limit, and nothing is computed. */
  readonly stub?: boolean;
  /** Start a process group of its own, so that a test can signal all of it and count its processes. */
  readonly ownGroup?: boolean;
  /** Variables of the process besides its configuration. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Its working directory; ours unless given. */
  readonly cwd?: string;
  /** How many descriptors it may have; by default as many as this process. */
  readonly openFiles?: number;
}

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** The chat and the decision model of the tests: the embedded file under two ids. */
export const CHAT = 'ra-tiny-chat';
export const DECIDE = 'ra-tiny-decide';

/** Settings for the embedded chat model alone, which starts sooner than both. */
export async function chatOnly(seats: number, contextPerSeat = 2048): Promise<{ models: readonly object[] }> {
  return { models: [{ id: CHAT, kind: 'chat', file: await embeddedTestModel(), seats, contextPerSeat }] };
}

/** The same model, whose engine starts with the first request: for a test that sends none that reaches it. */
export async function unloadedChat(): Promise<{ models: readonly object[] }> {
  return { models: (await chatOnly(1)).models.map((model) => ({ ...model, load: 'lazy' })) };
}

/** The real sidecar as a process, on free ports, with real engines. Stopped when its test ends. */
export class Sidecar {
  readonly child: ChildProcess;
  readonly lines: LogLine[] = [];
  /** What was printed for people. */
  printed = '';
  port = 0;
  operatorsPort = 0;
  key = '';
  readonly #events = new EventEmitter().setMaxListeners(0);
  readonly #exit: Promise<{ code: number | null; signal: string | null }>;

  private constructor(
    environment: Readonly<Record<string, string>>,
    { ownGroup, cwd, openFiles }: Pick<StartOptions, 'ownGroup' | 'cwd' | 'openFiles'>,
  ) {
    const args = [CLI, 'serve'];
    // It becomes the command: the process stays the same.
    const limited = ['prlimit', [`--nofile=${openFiles}`, process.execPath, ...args]] as const;
    const [command, all] = openFiles === undefined ? ([process.execPath, args] as const) : limited;
    this.child = spawn(command, all, {
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: ownGroup ?? false,
      ...(cwd !== undefined && { cwd }),
      env: { ...process.env, ...environment },
    });
    this.#exit = new Promise((resolve) => {
      this.child.once('close', (code, signal) => {
        resolve({ code, signal });
        this.#events.emit('change');
      });
    });
    const { stdout, stderr } = this.child;
    if (!stdout || !stderr) throw new Error('no pipes');
    createInterface(stdout).on('line', (line) => {
      this.lines.push(JSON.parse(line) as LogLine);
      this.#events.emit('change');
    });
    stderr.setEncoding('utf8').on('data', (text: string) => {
      this.printed += text;
      this.#events.emit('change');
    });
  }

  /** Starts it and waits until it is ready; with `early`, until it listens. */
  static async start(t: Owner, options: StartOptions = {}): Promise<Sidecar> {
    return await (await Sidecar.launch(t, options)).#up(options.early ?? false);
  }

  /** The same with `environment` alone: unset variables have their defaults. */
  static async startWith(
    t: Owner,
    environment: Readonly<Record<string, string>>,
    { early = false, cwd }: Pick<StartOptions, 'early' | 'cwd'> = {},
  ): Promise<Sidecar> {
    return await Sidecar.#spawn(t, environment, cwd === undefined ? {} : { cwd }).#up(early);
  }

  /** Starts the process and waits for nothing. */
  static async launch(t: Owner, options: StartOptions = {}): Promise<Sidecar> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-sidecar-'));
    const file = options.file ?? (await embeddedTestModel());
    const stubs = join(dir, 'stubs');
    if (options.stub) await mkdir(stubs);
    const config = {
      listen: { host: '127.0.0.1', port: 0 },
      operators: { host: '127.0.0.1', port: 0 },
      dataDir: dir,
      models: [
        {
          id: CHAT,
          kind: 'chat',
          file,
          seats: options.seats ?? 8,
          contextPerSeat: options.contextPerSeat ?? 2048,
        },
        { id: DECIDE, kind: 'decision', file, seats: 2, contextPerSeat: 8192 },
      ],
      // Whatever a test is about, each answer is checked against its schema.
      development: { validateAnswers: true },
      ...options.config,
      prompts: { silenceMs: PATIENT_MS, ...(options.config?.['prompts'] as object | undefined) },
      ...(options.stub && { engine: { checkMemory: false, ...(options.config?.['engine'] as object | undefined) } }),
    };
    config.models = config.models.map((model, i) => ({
      // Where Vulkan is installed, `auto` imports the whole package and starts a trial process.
      ...(!('engine' in model) && { gpu: false }),
      ...model,
      ...(options.stub && { file: stubModel(stubs, i, model.file) }),
    }));
    const configFile = join(dir, 'config.json');
    await writeFile(configFile, JSON.stringify(config));
    // Teardowns run last in, first out: the process has ended by then.
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const stubbed = options.stub && options.environment === undefined ? stubEnvironment(stubs) : options.environment;
    return Sidecar.#spawn(t, { ...stubbed, RA_CONFIG: configFile }, options);
  }

  static #spawn(
    t: Owner,
    environment: Readonly<Record<string, string>>,
    how: Pick<StartOptions, 'ownGroup' | 'cwd' | 'openFiles'>,
  ): Sidecar {
    const sidecar = new Sidecar(environment, how);
    t.teardown(async () => {
      sidecar.child.kill('SIGKILL');
      if (how.ownGroup === true) signalGroup(sidecar.pid, 'SIGKILL');
      await sidecar.exited();
      holdAnswers(sidecar.lines);
    });
    return sidecar;
  }

  async #up(early: boolean): Promise<this> {
    await this.until(() => (early ? this.#listens() : this.printed.includes('is ready at')), 'start');
    this.port = Number(this.#event('listening')?.['port']);
    this.operatorsPort = Number(this.#event('operators listening')?.['port']);
    this.key = /ra-dev-[\w-]+/.exec(this.printed)?.[0] ?? '';
    return this;
  }

  #event(event: string): LogLine | undefined {
    return this.lines.find((line) => line.event === event);
  }

  #listens(): boolean {
    return this.#event('listening') !== undefined && this.#event('operators listening') !== undefined;
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error('the sidecar could not be started');
    return this.child.pid;
  }

  get base(): string {
    return `http://127.0.0.1:${this.port}/v1`;
  }

  /** Waits for something in the log, on stderr or in the exit. Rejects after START_MS with the output so far. */
  async until(seen: () => boolean, what: string): Promise<void> {
    const signal = AbortSignal.timeout(START_MS);
    while (!seen()) {
      if (this.child.exitCode !== null && !this.#closedCleanly()) {
        throw new Error(`${what}: the sidecar ended with ${this.child.exitCode}\n${this.printed}`);
      }
      await once(this.#events, 'change', { signal }).catch(() => {
        throw new Error(
          `${what}: not seen\n${this.printed}\n${this.lines.map((line) => JSON.stringify(line)).join('\n')}`,
        );
      });
    }
  }

  #closedCleanly(): boolean {
    return this.child.exitCode === 0;
  }

  /** Waits until the log has `count` lines of an event, and returns the last of them. */
  async logged(event: string, count = 1, where: (line: LogLine) => boolean = () => true): Promise<LogLine> {
    const found = (): LogLine[] => this.lines.filter((line) => line.event === event && where(line));
    await this.until(() => found().length >= count, `log line "${event}"`);
    return found()[count - 1] as LogLine;
  }

  /** Resolves when the process has ended. */
  exited(): Promise<{ code: number | null; signal: string | null }> {
    return this.#exit;
  }

  /** The latest process of a model’s engine. */
  enginePid(model: string): number {
    const forked = this.lines.filter((line) => line.event === 'engine forked' && line['model'] === model).at(-1);
    if (!forked) throw new Error(`no engine of ${model} was forked`);
    return Number(forked['pid']);
  }

  /** POST with the development key, or without one if `key` is null. */
  post(
    path: string,
    body: unknown,
    options: { key?: string | null; signal?: AbortSignal; headers?: Record<string, string> } = {},
  ): Promise<Response> {
    const key = options.key === undefined ? this.key : options.key;
    return fetch(`${this.base}${path}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        ...(key !== null && { authorization: `Bearer ${key}` }),
        ...options.headers,
      },
      body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
      ...(options.signal && { signal: options.signal }),
    });
  }

  chat(body: Readonly<Record<string, unknown>>, options?: { signal?: AbortSignal }): Promise<Response> {
    return this.post('/chat/completions', { model: CHAT, ...body }, options);
  }

  /** GET /readyz on the public or the operators’ port: its status and its body. */
  async readyz(port = this.port): Promise<{ status: number; body: unknown }> {
    const response = await fetch(`http://127.0.0.1:${port}/readyz`);
    return { status: response.status, body: await response.json() };
  }

  /** One sample of the operators’ metrics, 0 if there is none. It must have all `labels`. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    // A histogram's samples have names with a suffix.
    const of = name.replace(/_(?:bucket|sum|count)$/, '');
    const page = await (await fetch(`http://127.0.0.1:${this.operatorsPort}/metrics?name[]=${of}`)).text();
    const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
    return page
      .split('\n')
      .filter(
        (line) =>
          (line.startsWith(`${name}{`) || line.startsWith(`${name} `)) && wanted.every((part) => line.includes(part)),
      )
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }
  /**
   * Waits until a metric, whose changes have no event, has a value, or one for which `value` is true. Rejects after
   * START_MS.
   */
  async reaches(
    name: string,
    value: number | ((now: number) => boolean),
    labels: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    const until = Date.now() + START_MS;
    for (let looks = 0; ; looks += 1) {
      const now = await this.metric(name, labels);
      if (typeof value === 'number' ? now === value : value(now)) return;
      if (Date.now() > until) throw new Error(`${name} is ${now}, not ${String(value)}`);
      await untilNextLook(looks);
    }
  }
}
