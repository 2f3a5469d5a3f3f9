/**
 * The sidecar's side of a prompt host: it queues items, sends the host as many as it has workers and some more, detects
 * hung items, and restarts the host when it ends. It loads no native code.
 *
 * One `check` or `tokenize` of a body is one item, or up to three in sequence: `tokenize`, `compile`, and `tokenize` again.
 */
import { fileURLToPath } from 'node:url';
import type { BodyForm } from '../contracts/requests.js';
import { contractError } from '../domain/errors.js';
import type { Signal } from '../lib/abort.js';
import { ChildProcess, confinedEnvironment, nodeOptions, type ChildEnd } from '../lib/child-process.js';
import { Backoff, type Clock } from '../lib/clock.js';
import type { Item, WeightedAccount } from '../lib/fair-share.js';
import { checkBody } from './check-body.js';
import { AHEAD_MS, ItemQueue } from './item-queue.js';
import { PROMPTS_VERSION, STACK_MB, type Answer, type FromHost, type HostSetup, type ModelReport } from './messages.js';
import type { PromptModel, ToHost, Work } from './messages.js';
import {
  failed,
  refused,
  type BodyBytes,
  type Checked,
  type NoResult,
  type OpenBody,
  type PromptMaker,
  type Refusal,
  type Tokenized,
} from './prompt-maker.js';

/** Wait between two starts: doubled for every host that ends without an answer, reset by an answer. */
const RESTART_MIN_MS = 50;
const RESTART_MAX_MS = 10_000;

/** Loading many large vocabularies on a busy machine takes seconds; after this time a host is considered hung, ms. */
const START_TIMEOUT_MS = 60_000;

/**
 * The host's own thread tokenizes too, and its stack is set when it starts, usually 8 MB; the shell that becomes the host raises it as far
 * as this machine allows.
 */
const RAISE_STACK = `ulimit -S -s ${STACK_MB * 1024} 2>/dev/null || ulimit -S -s "$(ulimit -H -s)"`;

/** node-llama-cpp does not load without a home folder. This one does not exist, so nothing in it can change what the host does. */
const NO_HOME = '/nonexistent';

/**
 * A host gets one more millisecond for each so many bytes of a body, to receive and decode them: 32 MiB/s, where an idle core does
 * some 100. Otherwise the largest bodies would take half of the default `prompts.silenceMs` before they are read.
 */
const BYTES_A_MS = 32 * 1024;

/** Which bodies a host takes: its name in logs and process lists. */
export type Lane = 'short' | 'long' | 'batch';

export interface PromptHostOptions {
  /** Part of the host's arguments, so that process lists show which one it is. */
  readonly name: Lane;
  readonly models: readonly PromptModel[];
  /** Threads of the host's pool; 0: it uses its own thread, one item after another. */
  readonly workers: number;
  /** Time without an answer for a running item, ms: the item fails and the host is killed. */
  readonly silenceMs: number;
  /** Items that may wait for a worker; further ones are refused with capacity_exceeded. */
  readonly maxQueued: number;
  /** Bodies up to this many bytes are parsed on this process's event loop. */
  readonly inlineBytes: number;
  readonly clock: Clock;
  /** For logs and metrics. */
  readonly hooks?: {
    /** A host has ended for this reason, and the next one starts in `delayMs`. */
    restart?(why: string, delayMs: number, lane: Lane): void;
  };
  /** The first host is forked for the first body. Absent: at once. */
  readonly onDemand?: boolean;
  /** Another worker module, for tests. */
  readonly workerFile?: string;
}

export interface PromptHostStats {
  /** True if it accepts items, also if the first one is to start it; false while it starts. */
  readonly up: boolean;
  readonly queued: number;
  readonly running: number;
  readonly restarts: number;
  /** Why its last start failed, until one succeeds. */
  readonly problem?: string;
}

export type FirstStart =
  { readonly kind: 'ready'; readonly models: readonly ModelReport[] } | { readonly kind: 'unable' };

interface Body {
  readonly id: number;
  readonly form: BodyForm;
  /** Keeps the bytes until the body is closed, since a new host needs them again. */
  readonly source: BodyBytes;
  readonly owner: WeightedAccount;
  /** The host that keeps a copy. */
  sentTo: ChildProcess | undefined;
  /** It is not needed any more. */
  closed: boolean;
}

/** Undefined once it is closed, or its source freed it. */
function bytesOf({ closed, source }: Body): Uint8Array | undefined {
  return closed ? undefined : source.bytes;
}

/** One `check` or `tokenize` of a body. */
interface PromptTask {
  readonly body: Body;
  /** The step of the present item. */
  work: Work;
  item?: Item<PromptTask>;
  /** Settles the caller's promise; only the first time counts. */
  readonly settle: (result: Checked | Tokenized) => void;
  /** Cancels the timer that detects a hang; set while it runs. */
  unwatch?: (() => void) | undefined;
  /** Clock reading at which that timer started. */
  runsSince?: number;
}

export class PromptHostClient implements PromptMaker {
  /** Settles once it is closed. */
  readonly gone: Promise<void>;
  readonly #options: PromptHostOptions;
  readonly #setup: HostSetup;
  readonly #items: ItemQueue<PromptTask>;
  readonly #first: Promise<FirstStart>;
  #settleFirst!: (result: FirstStart) => void;
  #markGone!: () => void;
  #host: ChildProcess | undefined;
  /** No body has come, and the host is started on demand. */
  #waits: boolean;
  /** The present host accepts items. */
  #isUp = false;
  #models: readonly ModelReport[] = [];
  /** The account whose item ended the last host, and when: it is also charged for the time until the next host is ready. */
  #cause: { readonly owner: WeightedAccount; readonly at: number } | undefined;
  /** This machine restarts no other host at that time, so the waits need no jitter. */
  readonly #backoff = new Backoff(RESTART_MIN_MS, RESTART_MAX_MS, () => 1);
  /** The wait before the last restart. */
  #delayMs = RESTART_MIN_MS;
  #cancelRestart: () => void = () => undefined;
  #restarts = 0;
  #problem: string | undefined;
  #nextBody = 0;
  #openBodies = 0;
  #retired = false;
  #closed = false;

  /** Forks the first host at once, unless it is started on demand. */
  constructor(options: PromptHostOptions) {
    this.#options = options;
    const { models, workers, maxQueued, workerFile } = options;
    this.#setup = { models, workers, ...(workerFile !== undefined && { workerFile }) };
    this.#items = new ItemQueue(Math.max(1, workers), maxQueued, workers === 0 ? AHEAD_MS : 0);
    this.#first = new Promise((resolve) => (this.#settleFirst = resolve));
    this.gone = new Promise((resolve) => (this.#markGone = resolve));
    this.#waits = options.onDemand ?? false;
    if (!this.#waits) this.#start();
  }

  /**
   * Settles once: the first host is ready, with its reports about the models, or it could not be started (and is retried). Of a host that
   * is started on demand it settles after that start.
   */
  ready(): Promise<FirstStart> {
    return this.#first;
  }

  /** The models, as the last host that was ready reported them. */
  get models(): readonly ModelReport[] {
    return this.#models;
  }

  stats(): PromptHostStats {
    const { queued, running } = this.#items;
    const problem = this.#problem === undefined ? {} : { problem: this.#problem };
    return { up: this.#isUp || this.#waits, queued, running, restarts: this.#restarts, ...problem };
  }

  open(form: BodyForm, source: BodyBytes, owner: WeightedAccount): OpenBody {
    const { account, weight } = owner;
    const id = this.#nextBody++;
    const body: Body = { id, form, source, owner: { account, weight }, sentTo: undefined, closed: false };
    this.#openBodies += 1;
    if (this.#waits) {
      this.#waits = false;
      this.#start();
    }
    return {
      check: (signal, apart) => this.#check(body, signal, apart),
      tokenize: (signal) => this.#ask({ kind: 'tokenize' }, body, signal) as Promise<Tokenized>,
      close: () => this.#closeBody(body),
    };
  }

  /** Closes once no body is open, which may be at once. */
  retire(): void {
    this.#retired = true;
    if (this.#openBodies === 0) this.close();
  }

  /** Kills the host; pending items fail. Idempotent, and may be called before the host is ready. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelRestart();
    void this.#host?.close();
    this.#isUp = this.#waits = false;
    this.#settleFirst({ kind: 'unable' });
    this.#failAll(failed('closed'));
    this.#markGone();
  }

  #check(body: Body, signal: Signal, apart = false): Promise<Checked> {
    const bytes = bytesOf(body);
    if (bytes !== undefined && (apart || bytes.byteLength > this.#options.inlineBytes))
      return this.#ask({ kind: 'check' }, body, signal) as Promise<Checked>;
    return Promise.resolve(bytes === undefined || signal.aborted ? ABORTED : checkBody(body.form, bytes, this.#models));
  }

  #ask(work: Work, body: Body, signal: Signal): Promise<Checked | Tokenized> {
    if (this.#closed) return Promise.resolve(failed('closed'));
    if (this.#problem !== undefined) return Promise.resolve(unavailable(this.#delayMs));
    if (bytesOf(body) === undefined || signal.aborted) return Promise.resolve(ABORTED);
    return new Promise((resolve) => {
      const settle = (result: Checked | Tokenized): void => {
        signal.removeEventListener('abort', abort);
        resolve(result);
      };
      const task: PromptTask = { body, work, settle };
      const abort = (): void => {
        if (task.item) this.#abandon(task.item);
        resolve(ABORTED);
      };
      signal.addEventListener('abort', abort);
      this.#add(task);
      this.#dispatch();
    });
  }

  /** Queues its next item, or ends it because too many wait. */
  #add(task: PromptTask): void {
    const added = this.#items.add(task, task.body.owner, task.work.kind === 'compile');
    if (added.kind === 'full') {
      task.settle(FULL);
      return;
    }
    task.item = added.item;
    added.dropped?.task.settle(FULL);
  }

  #abandon(item: Item<PromptTask>): void {
    if (this.#items.abandon(item)) this.#tell({ kind: 'cancel', item: item.id });
  }

  #dispatch(): void {
    const host = this.#host;
    if (!this.#isUp || !host) return;
    for (let item = this.#items.next(); item !== undefined; item = this.#items.next()) this.#send(host, item);
    for (const item of this.#items.runs()) if (item.task.unwatch === undefined) this.#watch(host, item);
  }

  #send(host: ChildProcess, { id, task: { body, work } }: Item<PromptTask>): void {
    const { form } = body;
    const bytes = bytesOf(body);
    const fresh = bytes !== undefined && body.sentTo !== host;
    this.#tell({ kind: 'item', item: id, work, body: body.id, ...(fresh && { sent: { form, bytes } }) });
    // The host keeps it for what follows; `tokenize` is the last one unless its answer is `needs-compiler`.
    body.sentTo = work.kind === 'tokenize' ? undefined : host;
  }

  #watch(host: ChildProcess, item: Item<PromptTask>): void {
    const { clock, silenceMs } = this.#options;
    const { task } = item;
    task.runsSince = clock.now();
    task.unwatch = clock.after(longestSilenceMs(silenceMs, bytesOf(task.body)?.length ?? 0), () => {
      void host.close();
      this.#restart(host, 'silent', item);
    });
  }

  /** `ready` is always the first message. */
  #received(host: ChildProcess, message: FromHost | null | undefined): void {
    if (!message || (message.kind === 'ready') === this.#isUp) {
      host.kill({ reason: 'protocol' });
      return;
    }
    if (message.kind === 'ready') {
      host.started();
      this.#isUp = true;
      this.#problem = undefined;
      this.#models = message.models;
      this.#settleFirst({ kind: 'ready', models: message.models });
      if (this.#cause) this.#items.charge(this.#cause.owner, this.#options.clock.now() - this.#cause.at);
      this.#cause = undefined;
    } else {
      const item = this.#items.finish(message.item, message.ms);
      if (item) this.#answered(item, message.result);
      this.#backoff.reset();
    }
    this.#dispatch();
  }

  #answered(item: Item<PromptTask>, answer: Answer): void {
    item.task.unwatch?.();
    item.task.unwatch = undefined;
    switch (answer.kind) {
      case 'needs-compiler':
        this.#continue(item, { kind: 'compile', ...(answer.syntax && { syntax: answer.syntax }) });
        break;
      case 'compiled':
        this.#continue(item, { kind: 'tokenize', compiled: answer.compiled });
        break;
      default:
        item.task.settle(answer);
    }
  }

  /** The host keeps a body that is not tokenized yet, until the next step or `drop`. */
  #continue({ task, abandoned }: Item<PromptTask>, work: Work): void {
    task.body.sentTo = this.#host;
    task.work = work;
    if (bytesOf(task.body) === undefined) this.#tell({ kind: 'drop', body: task.body.id });
    else if (!abandoned) this.#add(task);
  }

  #closeBody(body: Body): void {
    if (body.closed) return;
    body.closed = true;
    if (body.sentTo !== undefined && body.sentTo === this.#host) this.#tell({ kind: 'drop', body: body.id });
    this.#openBodies -= 1;
    if (this.#retired && this.#openBodies === 0) this.close();
  }

  #tell(message: ToHost): void {
    this.#host?.send(message);
  }

  #start(): void {
    if (this.#closed) return;
    const { name, clock, workers } = this.#options;
    const host = new ChildProcess(
      {
        entry: fileURLToPath(new URL('./host.js', import.meta.url)),
        name,
        // V8's helper threads optimize code while it runs, at a higher priority than the compiler thread's. Node starts four, which
        // together delay the first schema that takes long to compile by more than the work itself takes. Here there are as many as
        // threads that callers wait for.
        nodeArguments: [`--v8-pool-size=${Math.max(1, workers)}`],
        limits: RAISE_STACK,
        environment: confinedEnvironment({ HOME: NO_HOME, ...nodeOptions() }),
        clock,
        startTimeoutMs: START_TIMEOUT_MS,
      },
      {
        message: (raw) => this.#received(host, raw as FromHost | null | undefined),
        ended: (end) => this.#restart(host, wordFor(end, this.#isUp)),
      },
    );
    this.#host = host;
    this.#tell({ kind: 'start', v: PROMPTS_VERSION, setup: this.#setup });
  }

  /** The host has ended, or was killed for the item that hung. The next one starts after a delay, once this one has exited. */
  #restart(host: ChildProcess, why: string, hung?: Item<PromptTask>): void {
    const { clock, hooks, name } = this.#options;
    // Of a hung item only the item was at fault, and it has failed: accounts that send such items must not make others wait.
    const delayMs = hung === undefined ? this.#backoff.next() : RESTART_MIN_MS;
    this.#delayMs = delayMs;
    // Callers must not wait for a host that does not start.
    if (this.#isUp) this.#failCause(why, hung);
    else this.#failAll(unavailable(delayMs));
    this.#problem = this.#isUp ? undefined : why;
    this.#host = undefined;
    this.#isUp = false;
    this.#settleFirst({ kind: 'unable' });
    this.#restarts += 1;
    hooks?.restart?.(why, delayMs, name);
    this.#cancelRestart = clock.after(delayMs, () => void host.exited.then(() => this.#start()));
  }

  #failCause(reason: string, hung: Item<PromptTask> | undefined): void {
    this.#unwatch();
    const now = this.#options.clock.now();
    const ranMs = ({ runsSince = now }: PromptTask): number => now - runsSince;
    const cause = this.#items.lost(ranMs, hung);
    cause?.task.settle(failed(reason));
    this.#cause = cause && { owner: cause.owner, at: now };
  }

  #failAll(result: Refusal | NoResult): void {
    this.#unwatch();
    for (const item of this.#items.clear()) item.task.settle(result);
  }

  /** Nothing runs any more. An item that runs again gets a new timer. */
  #unwatch(): void {
    for (const { task } of this.#items.runs()) {
      task.unwatch?.();
      task.unwatch = undefined;
    }
  }
}

/** The word for the end of a host in the log. */
function wordFor({ reason, detail }: ChildEnd, wasUp: boolean): string {
  if (reason === 'unstartable') return `unstartable: ${detail}`;
  if (reason === 'protocol') return reason;
  return wasUp ? 'died' : 'start';
}

/** The longest time without an answer for an item with a body of so many bytes, ms. */
export function longestSilenceMs(silenceMs: number, bytes: number): number {
  return silenceMs + bytes / BYTES_A_MS;
}

const ABORTED: NoResult = { kind: 'aborted' };
const FULL = refused(contractError('capacity_exceeded', 'Too many requests are waiting to be read.'));

/** The host cannot be started; it is tried again in `retryAfterMs`. */
function unavailable(retryAfterMs: number): Refusal {
  return refused(contractError('cold', 'Prompts cannot be read now.', { retryAfterMs }));
}
