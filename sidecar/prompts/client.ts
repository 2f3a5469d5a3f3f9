/**
 * The sidecar's side of a prompt host: it queues items, sends the host as many as it has workers and some more, detects
 * hung items, and restarts the host when it ends. It loads no native code.
 */
import { fileURLToPath } from 'node:url';
import { parseBody } from '../contracts/parse.js';
import type { BodyForm } from '../contracts/requests.js';
import type { Signal } from '../lib/abort.js';
import { HostProcess, type HostEnd } from './host-process.js';
import type { PromptHostOptions, PromptHostStats } from './client-options.js';
import type { Item, WeightedAccount } from '../lib/fair-share.js';
import { ItemQueue } from './item-queue.js';
import { ABORTED, following, FULL, longestSilenceMs, unavailable } from './prompt-tasks.js';
import { Body, type PromptTask } from './prompt-tasks.js';
import type { Answer, HostSetup, ModelReport, FromHost, Work } from './messages.js';
import {
  type BodyBytes,
  type Checked,
  type NoResult,
  type OpenBody,
  type PromptMaker,
  type Refusal,
  type Tokenized,
  failed,
  refused,
} from './prompt-maker.js';

/** Wait between two starts: doubled for every host that ends without an answer, reset by an answer. */
const RESTART_MIN_MS = 50;
const RESTART_MAX_MS = 10_000;

export type FirstStart =
  { readonly kind: 'ready'; readonly models: readonly ModelReport[] } | { readonly kind: 'unable' };

export class PromptHostClient implements PromptMaker {
  readonly #options: PromptHostOptions;
  readonly #setup: HostSetup;
  readonly #items: ItemQueue<PromptTask>;
  readonly #first: Promise<FirstStart>;
  #settleFirst: (result: FirstStart) => void = () => undefined;
  #host: HostProcess | undefined;
  #hung: Item<PromptTask> | undefined;
  /**
   * The account of the item that caused the end of the last host, and when: it is also charged for the time until the next host is ready.
   */
  #cause: { readonly owner: WeightedAccount; readonly at: number } | undefined;
  #cancelRestart: () => void = () => undefined;
  #delayMs = RESTART_MIN_MS;
  #restarts = 0;
  #problem: string | undefined;
  #nextBody = 0;
  #closed = false;

  /** Forks the first host at once. */
  constructor(options: PromptHostOptions) {
    this.#options = options;
    const workerFile = options.workerFile ?? fileURLToPath(new URL('./worker.js', import.meta.url));
    this.#setup = { models: options.models, workers: options.workers, workerFile };
    const { workers, maxQueued } = options;
    this.#items = new ItemQueue(Math.max(1, workers), maxQueued);
    this.#first = new Promise((resolve) => {
      this.#settleFirst = resolve;
    });
    this.#start();
  }

  /**
   * Settles once: the first host is ready, with its reports about the models, or it could not be started (and is
   * retried).
   */
  ready(): Promise<FirstStart> {
    return this.#first;
  }

  stats(): PromptHostStats {
    const { queued, running } = this.#items;
    const problem = this.#problem === undefined ? {} : { problem: this.#problem };
    return { up: this.#host?.ready === true, queued, running, restarts: this.#restarts, ...problem };
  }

  open(form: BodyForm, source: BodyBytes, owner: WeightedAccount): OpenBody {
    const { account, weight } = owner;
    const body = new Body(this.#nextBody++, form, source, { account, weight });
    return {
      check: (signal) => this.#check(body, signal),
      tokenize: (signal) => this.#ask({ kind: 'tokenize' }, body, signal) as Promise<Tokenized>,
      close: () => this.#drop(body),
    };
  }

  /** Kills the host; pending items fail. Idempotent, and may be called before the host is ready. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelRestart();
    this.#host?.kill('closed');
    this.#settleFirst({ kind: 'unable' });
    this.#failAll(failed('closed'));
  }

  #check(body: Body, signal: Signal): Promise<Checked> {
    const { form, bytes } = body;
    if (bytes !== undefined && bytes.byteLength > this.#options.inlineBytes)
      return this.#ask({ kind: 'check' }, body, signal) as Promise<Checked>;
    if (bytes === undefined || signal.aborted) return Promise.resolve({ kind: 'aborted' });
    const parsed = parseBody(form, bytes);
    return Promise.resolve(
      parsed.kind === 'invalid' ? refused(parsed.error) : { kind: 'checked', params: parsed.request.params },
    );
  }

  #ask(work: Work, body: Body, signal: Signal): Promise<Checked | Tokenized> {
    if (this.#closed) return Promise.resolve(failed('closed'));
    if (this.#problem !== undefined) return Promise.resolve(unavailable(this.#delayMs));
    if (body.bytes === undefined || signal.aborted) return Promise.resolve(ABORTED);
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
    if (this.#items.abandon(item)) this.#host?.send({ kind: 'cancel', item: item.id });
  }

  #dispatch(): void {
    const host = this.#host;
    if (host?.ready !== true || this.#hung !== undefined) return;
    for (let item = this.#items.next(); item !== undefined; item = this.#items.next()) this.#send(host, item);
    for (const item of this.#items.runs()) if (item.task.unwatch === undefined) this.#watch(host, item);
  }

  #send(host: HostProcess, { id, task: { body, work } }: Item<PromptTask>): void {
    const { form, bytes } = body;
    const fresh = bytes !== undefined && body.sentTo !== host;
    host.send({ kind: 'item', item: id, work, body: body.id, ...(fresh && { sent: { form, bytes } }) });
    // The host keeps it for what follows; `tokenize` is the last one unless its answer is `needs-compiler`.
    body.sentTo = work.kind === 'tokenize' ? undefined : host;
  }

  #watch(host: HostProcess, item: Item<PromptTask>): void {
    item.task.runsSince = this.#options.clock.now();
    const silenceMs = longestSilenceMs(this.#options.silenceMs, item.task.body);
    item.task.unwatch = this.#options.clock.after(silenceMs, () => {
      if (this.#hung !== undefined) return;
      this.#hung = item;
      item.task.settle(failed('silent'));
      host.kill('silent');
    });
  }

  #received(message: FromHost, forkedAt: number): void {
    if (message.kind === 'ready') {
      this.#problem = undefined;
      this.#options.hooks?.ready?.(message.models, this.#options.clock.now() - forkedAt);
      this.#settleFirst({ kind: 'ready', models: message.models });
      if (this.#cause) this.#items.charge(this.#cause.owner, this.#options.clock.now() - this.#cause.at);
      this.#cause = undefined;
    } else {
      const item = this.#items.finish(message.item, message.ms);
      if (item) this.#answered(item, message.result);
      this.#delayMs = RESTART_MIN_MS;
    }
    this.#dispatch();
  }

  #answered({ task, abandoned }: Item<PromptTask>, answer: Answer): void {
    task.unwatch?.();
    task.unwatch = undefined;
    const next = following(answer);
    if (next.kind === 'result') {
      task.settle(next.result);
      return;
    }
    // A prompt that is not tokenized yet is still kept by the host.
    task.body.sentTo = this.#host;
    task.work = next.work;
    if (task.body.bytes === undefined) this.#host?.send({ kind: 'drop', body: task.body.id });
    else if (!abandoned) this.#add(task);
  }

  #drop(body: Body): void {
    if (body.closed) return;
    body.closed = true;
    if (body.sentTo !== undefined && body.sentTo === this.#host) this.#host.send({ kind: 'drop', body: body.id });
  }

  #start(): void {
    const forkedAt = this.#options.clock.now();
    this.#host = new HostProcess(this.#options.name, this.#setup, this.#options.clock, {
      message: (message) => this.#received(message, forkedAt),
      exited: (why, code) => this.#exited(why, code),
    });
  }

  #exited(why: HostEnd, code?: string): void {
    this.#host = undefined;
    if (this.#closed) return;
    // Callers must not wait for a host that does not start.
    const started = why !== 'start' && why !== 'unstartable';
    const reason = code === undefined ? why : `${why}: ${code}`;
    const delayMs = this.#delayMs;
    if (started) this.#failCause(reason);
    else this.#failAll(unavailable(delayMs));
    this.#problem = started ? undefined : reason;
    this.#settleFirst({ kind: 'unable' });
    // Only one item was at fault, and it has failed: accounts that send such items must not make others wait.
    if (why !== 'silent') this.#delayMs = Math.min(delayMs * 2, RESTART_MAX_MS);
    this.#restarts += 1;
    this.#options.hooks?.restart?.(reason, delayMs);
    this.#cancelRestart = this.#options.clock.after(delayMs, () => this.#start());
  }

  #failCause(reason: string): void {
    this.#unwatch();
    const now = this.#options.clock.now();
    const ranMs = ({ runsSince = now }: PromptTask): number => now - runsSince;
    const cause = this.#items.lost(ranMs, this.#hung);
    cause?.task.settle(failed(reason));
    this.#cause = cause && { owner: cause.owner, at: now };
    this.#hung = undefined;
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
