/**
 * A child process of the sidecar with a link to it, from its start to its exit: an engine, a prompt host, a vision process.
 *
 *      start ----> starting --started()--> working
 *
 *      of its own ------------> exited, killed, crashed, aborted: reported after its last messages
 *      no started() in time --> start-timeout: killed, and reported at once
 *      silent, or stuck ------> hang: killed, and reported at once
 *      kill(reason) ----------> that reason: killed, and reported at once
 *      close() ---------------> not reported
 *
 * Each end is possible from both states, except `hang`, which needs `started()`. Until it has exited (`exited`) its memory is not free.
 */
import { spawn, type ChildProcess as NodeProcess } from 'node:child_process';
import { homedir } from 'node:os';
import { Link } from '../../engine/protocol/link.js';
import { END_WITH_PARENT, NO_CORE_FILE } from '../../engine/protocol/process-settings.js';
import { withTimeout, type Clock } from './clock.js';

/** How long the last messages of a child are awaited after its exit, ms: a process that it started may keep its pipes open. */
const LAST_MESSAGES_MS = 250;

/** A child whose link has ended, and that does not exit for this long, is killed, ms: unloading a GPU's driver takes seconds. */
const EXIT_MS = 10_000;

/** How long `close` waits for a killed child, ms: only one that is stuck inside a driver takes longer. */
export const KILL_WAIT_MS = 2000;

/** Why a child process ended, as one word for logs and metrics. */
export type EndReason =
  | 'unstartable'
  /** It had not started to work in time. */
  | 'start-timeout'
  /** It reported that it cannot work. */
  | 'unable'
  | 'hang'
  | 'protocol'
  /** By a signal from outside: the out-of-memory killer or an operator. */
  | 'killed'
  /** By a fault of its own, such as a segmentation fault. */
  | 'crashed'
  /** By an assertion of its own. */
  | 'aborted'
  /** By itself, with an exit code. */
  | 'exited';

export interface ChildEnd {
  readonly reason: EndReason;
  /** hang: silent or stuck; unstartable: the operating system's code; otherwise the owner's words; never content. */
  readonly detail?: string;
  /** unable: a later start may succeed. */
  readonly mayMend?: boolean;
  /** A known phrase in its last output. */
  readonly hint?: StderrHint;
  readonly code: number | null;
  readonly signal: string | null;
}

export interface ChildOptions {
  /** Path of the module that Node runs. */
  readonly entry: string;
  /** Shown in process lists, after the entry. */
  readonly name?: string;
  /** Arguments of Node. This process's own are not passed on: its heap and its inspector are not meant for children. */
  readonly nodeArguments?: readonly string[];
  /** The cores that all of its threads run on, as in `0-3,8`. Absent: any. */
  readonly cores?: string;
  /** A command of the shell that becomes the child, for limits that JavaScript cannot set. */
  readonly limits?: string;
  /** The child's whole environment. */
  readonly environment: Environment;
  readonly clock: Clock;
  /** From the start to `started()`, ms. */
  readonly startTimeoutMs: number;
  /** Absent: its owner detects that it hangs. */
  readonly watch?: WatchOptions;
}

export interface WatchOptions {
  /** A working child that sends no message, or has work and makes no progress, for this long is killed, ms. */
  readonly hangMs: number;
  readonly hasWork: () => boolean;
}

export interface ChildEvents {
  /** An unchecked message. Never called after the end. */
  message(raw: unknown): void;
  /**
   * Once, as the last event, unless close() came first; also if it had to be killed, then without waiting for its exit. Never called from
   * inside the constructor.
   */
  ended(end: ChildEnd): void;
}

/** One child process. It exits when this process ends. Its stderr is read, or it would block, but never logged: it may quote a prompt. */
export class ChildProcess {
  /** Settles when the process is gone. Never rejects. */
  readonly exited: Promise<void>;
  readonly #clock: Clock;
  readonly #startTimeoutMs: number;
  readonly #watchOptions: WatchOptions | undefined;
  readonly #events: ChildEvents;
  readonly #stderr = new StderrTail();
  readonly #process: NodeProcess | undefined;
  readonly #link: Link | undefined;
  #watch: HangWatch | undefined;
  #working = false;
  #over = false;
  #cancelTimer: () => void = () => undefined;

  /** Starts it at once. */
  constructor(options: ChildOptions, events: ChildEvents) {
    const { entry, name, nodeArguments = [], cores, limits, environment, clock, startTimeoutMs, watch } = options;
    this.#clock = clock;
    this.#startTimeoutMs = startTimeoutMs;
    this.#watchOptions = watch;
    this.#events = events;
    const node = [process.execPath, ...nodeArguments, entry, ...(name === undefined ? [] : [name])];
    const command = cores === undefined ? node : ['taskset', '-c', cores, ...node];
    const first = [NO_CORE_FILE, 'unset PWD', ...(limits === undefined ? [] : [limits])];
    const script = [...first, END_WITH_PARENT, 'exec "$0" "$@"'].join('; ');
    const child = spawned(script, command, environment);
    if (child instanceof Promise) {
      this.exited = child.then((detail) => this.#end({ reason: 'unstartable', detail, code: null, signal: null }));
      return;
    }
    this.#process = child;
    this.#link = Link.toChild(child, { message: (raw) => this.#received(raw), closed: () => this.#linkEnded() });
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => this.#stderr.add(chunk));
    this.exited = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        resolve();
        this.#exited(child, code, signal);
      });
    });
    this.resumeStart();
  }

  /** Undefined if it could not be started. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Never throws. A message to a child that has ended is lost, and `ended` reports its end. */
  send(message: object): void {
    this.#link?.send(message);
  }

  /** Its start waits for its owner, who bounds that: its time does not run. */
  holdStart(): void {
    this.#cancelTimer();
  }

  /** The time to start begins anew. */
  resumeStart(): void {
    if (this.#over || this.#working) return;
    this.#cancelTimer();
    this.#cancelTimer = this.#clock.after(this.#startTimeoutMs, () => this.kill({ reason: 'start-timeout' }));
  }

  /** It works from now on: the time to start is over, and the watch for a hang begins. */
  started(): void {
    if (this.#over || this.#working) return;
    this.#working = true;
    this.#cancelTimer();
    if (this.#watchOptions === undefined) return;
    this.#watch = new HangWatch(this.#clock, this.#watchOptions, (detail) => this.kill({ reason: 'hang', detail }));
  }

  /** Its last message shows that its work has progressed. */
  progressed(): void {
    this.#watch?.progressed();
  }

  /** Kills it at once, whatever its threads do, and reports its end with this reason. */
  kill(end: Pick<ChildEnd, 'reason' | 'detail' | 'mayMend'>): void {
    this.#process?.kill('SIGKILL');
    this.#end({ code: null, signal: null, ...end });
  }

  /**
   * Ends it without a report: with `last` as its last message, and SIGKILL after `graceMs`; at once if it does not work yet. Settles
   * when it has exited, or {@link KILL_WAIT_MS} after SIGKILL.
   */
  async close(graceMs = 0, last?: object): Promise<void> {
    const graceful = this.#working && last !== undefined;
    this.#finish();
    if (graceful) {
      this.send(last);
      if (await withTimeout(this.#clock, graceMs, this.exited)) return;
    }
    this.#process?.kill('SIGKILL');
    await withTimeout(this.#clock, KILL_WAIT_MS, this.exited);
  }

  #received(raw: unknown): void {
    if (this.#over) return;
    this.#watch?.heard();
    this.#events.message(raw);
  }

  /** Its last messages may still arrive: `close` comes after them. */
  #exited(child: NodeProcess, code: number | null, signal: string | null): void {
    const end = (): void => {
      cancel();
      this.#link?.close();
      child.stderr?.destroy();
      this.#end({ reason: exitReason(signal), code, signal });
    };
    const cancel = this.#clock.after(LAST_MESSAGES_MS, end);
    child.once('close', end);
  }

  /** It has exited, or is about to. */
  #linkEnded(): void {
    if (this.#over) return;
    const kill = (): void => this.kill({ reason: 'hang', detail: 'its link has ended' });
    const cancel = this.#clock.after(EXIT_MS, kill);
    void this.exited.then(cancel);
  }

  #end(end: ChildEnd): void {
    if (this.#over) return;
    this.#finish();
    const { hint } = this.#stderr;
    this.#events.ended(hint === undefined ? end : { ...end, hint });
  }

  #finish(): void {
    this.#over = true;
    this.#cancelTimer();
    this.#watch?.stop();
  }
}

/** Starts a shell with a link. Never throws; a failed start is the operating system's code, such as EMFILE, after this turn. */
function spawned(script: string, command: readonly string[], environment: Environment): NodeProcess | Promise<string> {
  try {
    const stdio = ['ignore', 'ignore', 'pipe', 'pipe'] as const;
    const child = spawn('/bin/sh', ['-c', script, ...command], { stdio: [...stdio], env: { ...environment } });
    // Later errors are about signals that could not be sent.
    const failed = new Promise<string>((resolve) => child.on('error', (error) => resolve(codeOf(error))));
    // If descriptors have run out, Node creates a child without streams, and an event.
    return child.pid === undefined ? failed : child;
  } catch (error) {
    // A few failures (no memory) are thrown.
    return Promise.resolve(codeOf(error));
  }
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? 'unknown';
}

/** Checks per `hangMs`. A hang is detected after `hangMs` at the earliest, and one or two intervals later at the latest. */
const CHECKS = 8;

/** silent: no message at all. stuck: messages arrive and there is work, but it makes no progress. */
export type Hang = 'silent' | 'stuck';

/**
 * Detects that a child hangs, by periodic checks. If a check is late, because this process was paused (a long collection, a suspended
 * machine), that time is not counted, since the child's messages wait unread.
 */
export class HangWatch {
  readonly #clock: Clock;
  readonly #hangMs: number;
  readonly #intervalMs: number;
  readonly #hasWork: () => boolean;
  readonly #onHang: (hang: Hang) => void;
  #heardAt: number;
  #progressAt: number;
  #checkedAt: number;
  #cancel: () => void;

  /** Starts checking at once. `onHang` is called at most once. */
  constructor(clock: Clock, { hangMs, hasWork }: WatchOptions, onHang: (hang: Hang) => void) {
    this.#clock = clock;
    this.#hangMs = hangMs;
    this.#intervalMs = hangMs / CHECKS;
    this.#hasWork = hasWork;
    this.#onHang = onHang;
    this.#heardAt = this.#progressAt = this.#checkedAt = clock.now();
    this.#cancel = clock.after(this.#intervalMs, () => this.#check());
  }

  /** A message arrived. */
  heard(): void {
    this.#heardAt = this.#clock.now();
  }

  /** The last message shows progress. */
  progressed(): void {
    this.#progressAt = this.#heardAt;
  }

  stop(): void {
    this.#cancel();
  }

  #check(): void {
    const now = this.#clock.now();
    const lateMs = now - this.#checkedAt - this.#intervalMs;
    this.#checkedAt = now;
    if (lateMs > this.#intervalMs) {
      this.#heardAt = Math.min(this.#heardAt + lateMs, now);
      this.#progressAt = Math.min(this.#progressAt + lateMs, now);
    }
    // Work may have started at any time since the last check, so its start is known only to one interval.
    if (!this.#hasWork()) this.#progressAt = now;
    if (now - this.#heardAt >= this.#hangMs) this.#onHang('silent');
    else if (now - this.#progressAt >= this.#hangMs + this.#intervalMs) this.#onHang('stuck');
    else this.#cancel = this.#clock.after(this.#intervalMs, () => this.#check());
  }
}

const CRASHES: ReadonlySet<string> = new Set(['SIGSEGV', 'SIGBUS', 'SIGILL', 'SIGFPE', 'SIGTRAP', 'SIGSYS']);

/** The word for the end of a process that this process did not kill. */
export function exitReason(signal: string | null): EndReason {
  if (signal === null) return 'exited';
  if (signal === 'SIGABRT') return 'aborted';
  return CRASHES.has(signal) ? 'crashed' : 'killed';
}

/** Known phrases in the stderr of a process about to end, and their words. The first match counts. */
const HINTS = [
  ['JavaScript heap out of memory', 'heap-exhausted'],
  ['GGML_ASSERT', 'assertion'],
  ['CUDA error', 'device-error'],
  ['ErrorDeviceLost', 'device-error'],
  ['out of memory', 'out-of-memory'],
  ['failed to allocate', 'out-of-memory'],
  ['cannot open shared object file', 'missing-library'],
  ['ERR_MODULE_NOT_FOUND', 'missing-module'],
] as const;

export type StderrHint = (typeof HINTS)[number][1];

/** Characters of stderr that are searched for a hint. */
const TAIL = 8192;

/** The end of a child's stderr, only matched against known phrases and never returned: an error's message could contain a prompt. */
export class StderrTail {
  #text = '';

  add(chunk: string): void {
    this.#text = (this.#text + chunk).slice(-TAIL);
  }

  /** A known cause, or undefined. */
  get hint(): StderrHint | undefined {
    return HINTS.find(([phrase]) => this.#text.includes(phrase))?.[1];
  }
}

type Environment = Readonly<Record<string, string | undefined>>;

/** What every program needs to find libraries, programs and files, and to write times. */
const BASIC = ['PATH', 'LD_LIBRARY_PATH', 'TMPDIR', 'TZ', 'LANG'];

/** What a program that computes reads besides, and {@link FAMILIES}. */
const COMPUTES = ['HOME', 'LD_PRELOAD', 'GLIBC_TUNABLES', 'NODE_OPTIONS'];

/** Settings of drivers, of llama.cpp, OpenMP and memory allocators, and where Vulkan finds its drivers, by how their names begin. */
const FAMILIES =
  /^(LC|XDG|CUDA|NVIDIA|AMD|HIP|ROCR|HSA|GGML|LLAMA|NODE_LLAMA_CPP|VK|MESA|RADV|ANV|LP|OMP|GOMP|KMP|OPENBLAS|MALLOC)_/;

/** In the name of a variable of such a family: it holds a secret, as LLAMA_API_KEY and NVIDIA_API_KEY do. */
const SECRET = /KEY|TOKEN|SECRET|PASS|CREDENTIAL/;

/** How the certificates of servers are checked. */
const REQUESTS = ['NODE_EXTRA_CA_CERTS', 'NODE_TLS_REJECT_UNAUTHORIZED', 'SSL_CERT_FILE', 'SSL_CERT_DIR'];

/** Proxies, and where model files are fetched from, with the operator's token for it. */
const DOWNLOADS = [
  ...['NODE_USE_ENV_PROXY', 'HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'],
  ...['http_proxy', 'https_proxy', 'all_proxy', 'no_proxy'],
  ...['HF_TOKEN', 'HF_TOKEN_PATH', 'HF_HOME', 'HF_ENDPOINT', 'MODEL_ENDPOINT'],
];

/** Names of variables by what a child does; `requests`: to a model's server. Each child computes too. */
const NAMES = {
  computes: new Set([...BASIC, ...COMPUTES]),
  requests: new Set([...BASIC, ...COMPUTES, ...REQUESTS]),
  downloads: new Set([...BASIC, ...COMPUTES, ...REQUESTS, ...DOWNLOADS]),
} as const;

/**
 * The environment of a child process: of this process's variables those that such a child may read, with `set` over them. All others
 * are the sidecar's, such as its keys and tokens. node-llama-cpp fails to load if the user has no home folder, as in many containers.
 * Then HOME names a folder that does not exist, so that no other user can put files there for the child to read. `homeOf` returns the
 * user's home folder and throws if there is none.
 */
export function childEnvironment(
  set: Environment = {},
  work: keyof typeof NAMES = 'computes',
  here: Environment = process.env,
  homeOf: () => unknown = homedir,
): Environment {
  const kept = selected(here, (name) => NAMES[work].has(name) || (FAMILIES.test(name) && !SECRET.test(name)));
  try {
    homeOf();
    return { ...kept, ...set };
  } catch {
    return { ...kept, HOME: '/nonexistent', ...set };
  }
}

/** The environment of a child that reads callers' content: only what every program needs, with `set` over it. */
export function confinedEnvironment(set: Environment = {}, here: Environment = process.env): Environment {
  return { ...selected(here, (name) => BASIC.includes(name)), ...set };
}

/** What the operator set for Node, as limits of its memory: it holds for prompt hosts too. */
export function nodeOptions({ NODE_OPTIONS: options }: Environment = process.env): Environment {
  return options === undefined ? {} : { NODE_OPTIONS: options };
}

function selected(here: Environment, isAllowed: (name: string) => boolean): Environment {
  return Object.fromEntries(Object.entries(here).filter(([name]) => isAllowed(name)));
}
