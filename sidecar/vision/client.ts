/**
 * The sidecar's side of a model's vision process: it sends one image after another, remembers layouts, detects hung images and
 * starts the process again when it ends. The image that it was encoding fails; those that wait are sent to the next process.
 * Sizes that were asked for are `unavailable`; if it was encoding nothing, the first of them is `failed`: it may have caused the end.
 */
import { randomBytes } from 'node:crypto';
import type { ChildProcess } from '../lib/child-process.js';
import type { Backoff, Clock } from '../lib/clock.js';
import { FairShare, type Item } from '../lib/fair-share.js';
import { LoadEstimate } from '../lib/load-estimate.js';
import type { Log } from '../telemetry/logger.js';
import { type CacheScope, ClosedScopes } from '../../engine/protocol/cache-key.js';
import type { EncodeTask, LayoutPart, Size, VisionFacts, VisionSetup } from '../../engine/protocol/vision-messages.js';
import {
  START_TIMEOUT_MS,
  VisionProcess,
  type VisionEnd,
  type VisionMessage,
  type VisionProcessEvents,
} from './process.js';

export type { EncodeTask, Size, VisionFacts } from '../../engine/protocol/vision-messages.js';

/** An image that is not encoded within this time counts as hung, ms. On a CPU real encoders take up to a minute. */
const ENCODE_MS = 300_000;

/** Counting takes microseconds, but an encode may use all cores, ms. */
const LAYOUT_MS = 10_000;

/** Of an image, unless the settings say otherwise. */
export const MAX_TOKENS = 4096;

/** Images that wait: each is of a request that has a seat. */
const MAX_WAITING = 4096;

/** Sizes whose layouts are remembered; when there are more, all are dropped. */
const MAX_LAYOUTS = 4096;

/** cold: loading, or between two processes; ready: takes images; lost: the projector cannot be used, or it was closed. */
export type VisionState = 'cold' | 'ready' | 'lost';

export type Layout =
  | { readonly kind: 'layout'; readonly parts: readonly LayoutPart[] }
  /** The projector takes no image of this size, or its process ended over it. */
  | { readonly kind: 'failed' }
  /** There is no process now. */
  | { readonly kind: 'unavailable' };

export type Encoded =
  /** One for each part of the layout with embeddings, in order. */
  | { readonly kind: 'encoded'; readonly embeddings: readonly Float32Array[] }
  /** The file is not what its head says. */
  | { readonly kind: 'undecodable' }
  /** The process ended or hung over it, or there are too many. */
  | { readonly kind: 'failed' };

/** An image that is encoded, or waits for it. */
export interface Encoding {
  /** Never rejects; never settles after `cancel`. */
  readonly result: Promise<Encoded>;
  /** The image is no longer needed. One that is being encoded is finished and kept. Idempotent. */
  readonly cancel: () => void;
}

/** A vision process as routes know it. */
export type Vision = Readonly<
  Pick<VisionClient, 'state' | 'readyInMs' | 'facts' | 'maxTokens' | 'secret' | 'layout' | 'encode'>
>;

export interface VisionClientOptions {
  readonly setup: VisionSetup;
  readonly clock: Clock;
  readonly log: Log;
  /** The model's id, for the log. */
  readonly model: string;
  /** Between two starts. */
  readonly backoff: Backoff;
  /** Another process, for tests. */
  readonly fork?: (setup: VisionSetup, clock: Clock, events: VisionProcessEvents) => VisionChild;
}

interface VisionChild extends Pick<VisionProcess, 'send'> {
  readonly child: Pick<ChildProcess, 'kill' | 'close' | 'pid' | 'exited'>;
}

interface LayoutQuery {
  readonly id: number;
  readonly settle: (result: Layout) => void;
  readonly unwatch: () => void;
}

interface WantedImage {
  readonly task: EncodeTask;
  readonly settle: (result: Encoded) => void;
}

/** The image that the process encodes, since this clock reading. */
interface Running {
  readonly id: number;
  readonly item: Item<WantedImage>;
  readonly since: number;
  readonly unwatch: () => void;
}

export class VisionClient {
  /** The most tokens of an image. */
  readonly maxTokens: number;
  /** Random bytes of this sidecar. Digests of images are made with them, so that no caller can choose one or find one out. */
  readonly secret: Uint8Array = randomBytes(32);
  readonly #options: VisionClientOptions;
  #state: VisionState = 'cold';
  /** Why the present process cannot start, one line for the operator. */
  #problem: string | undefined;
  #facts: VisionFacts | undefined;
  #process: VisionChild | undefined;
  #started = false;
  readonly #estimate = new LoadEstimate(START_TIMEOUT_MS);
  #cancelStart: () => void = () => undefined;
  #nextId = 1;
  readonly #layouts = new Map<string, Promise<Layout>>();
  #queries: LayoutQuery[] = [];
  /** Shares the process's time between accounts, so that one with many images does not keep another's request on its seat. */
  readonly #waiting = new FairShare<WantedImage>();
  readonly #closed = new ClosedScopes();
  #running: Running | undefined;

  constructor(options: VisionClientOptions) {
    this.#options = options;
    this.maxTokens = options.setup.maxTokens ?? MAX_TOKENS;
  }

  get state(): VisionState {
    return this.#state;
  }

  /** Set from the first `ready` on. */
  get facts(): VisionFacts | undefined {
    return this.#facts;
  }

  /** Until it may be ready, ms. */
  get readyInMs(): number {
    return this.#state === 'ready' ? 0 : this.#estimate.readyInMs(this.#options.clock.now());
  }

  /** Begins to load. Again, or after close(), it does nothing. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#fork();
  }

  /** Drops the embeddings that requests of this scope left, and keeps none that they leave later. */
  forget(scope: CacheScope): void {
    this.#closed.close(scope);
    if (this.#state === 'ready') this.#process?.send({ kind: 'forget', scope });
  }

  /** Kills its process. Idempotent. */
  close(): void {
    this.#started = true;
    this.#state = 'lost';
    this.#cancelStart();
    void this.#process?.child.close();
    this.#settleRunning({ kind: 'failed' });
    this.#failWaiting();
  }

  /** What an image of this size becomes in a prompt. Never rejects. */
  layout(size: Size): Promise<Layout> {
    this.start();
    const process = this.#process;
    if (this.#state !== 'ready' || !process) return Promise.resolve({ kind: 'unavailable' });
    const key = `${size.width}x${size.height}`;
    const known = this.#layouts.get(key);
    if (known) return known;
    if (this.#layouts.size >= MAX_LAYOUTS) this.#layouts.clear();
    const id = this.#nextId++;
    const asked = new Promise<Layout>((settle) => {
      const unwatch = this.#options.clock.after(LAYOUT_MS, () => process.child.kill({ reason: 'hang' }));
      this.#queries.push({ id, settle, unwatch });
    });
    this.#layouts.set(key, asked);
    void asked.then(({ kind }) => kind === 'layout' || this.#layouts.delete(key));
    process.send({ kind: 'layout', id, size });
    return asked;
  }

  /** Accounts take turns. */
  encode(task: EncodeTask, account: string): Encoding {
    if (this.#state === 'lost' || this.#waiting.size >= MAX_WAITING)
      return { result: Promise.resolve({ kind: 'failed' }), cancel: () => undefined };
    let settle: WantedImage['settle'] = () => undefined;
    const result = new Promise<Encoded>((resolve) => (settle = resolve));
    const item = this.#waiting.add({ task, settle }, { account, weight: 1 });
    this.#next();
    return { result, cancel: () => this.#waiting.remove(item) };
  }

  #fork(): void {
    const { setup, clock, fork } = this.#options;
    if (this.#state === 'lost') return;
    this.#estimate.forked(clock.now());
    this.#problem = undefined;
    const events: VisionProcessEvents = {
      message: (message) => this.#received(message),
      ended: (why) => this.#ended(why),
    };
    this.#process = fork?.(setup, clock, events) ?? new VisionProcess(setup, clock, events);
  }

  #next(): void {
    if (this.#state !== 'ready' || this.#running || !this.#process) return;
    const process = this.#process;
    const item = this.#waiting.take();
    if (!item) return;
    const id = this.#nextId++;
    const { clock } = this.#options;
    const unwatch = clock.after(ENCODE_MS, () => process.child.kill({ reason: 'hang' }));
    this.#running = { id, item, since: clock.now(), unwatch };
    process.send({ kind: 'encode', id, task: item.task.task });
  }

  #received(message: VisionMessage): void {
    const { kind } = message;
    if (kind === 'ready') this.#ready(message.facts);
    else if (kind === 'unable') this.#unable(message);
    else if (kind === 'layout') this.#settleLayout(message.id, { kind, parts: message.parts });
    else if (kind === 'encoded') this.#encoded(message.id, { kind, embeddings: message.embeddings });
    else if (kind === 'refused') {
      this.#settleLayout(message.id, { kind: 'failed' });
      this.#encoded(message.id, { kind: message.why });
    }
  }

  #ready(facts: VisionFacts): void {
    const { log, model } = this.#options;
    // Another projector under the same name.
    if (this.#facts?.projectorVersion !== facts.projectorVersion) this.#layouts.clear();
    this.#facts = facts;
    this.#state = 'ready';
    this.#estimate.ready(this.#options.clock.now());
    const { pid } = this.#process?.child ?? {};
    log.info('vision ready', { model, ...(pid !== undefined && { pid }) });
    const { filtered, bounded } = facts.confinement;
    if (!filtered || !bounded) log.warn('vision is not confined', { model });
    // Images of these accounts may wait.
    for (const scope of this.#closed) this.#process?.send({ kind: 'forget', scope });
    this.#next();
  }

  #unable({ reason, mayMend }: Extract<VisionMessage, { kind: 'unable' }>): void {
    const { log, model } = this.#options;
    this.#problem = reason;
    if (mayMend) return;
    this.#state = 'lost';
    log.error('vision cannot serve its model', { model, reason });
    this.#failWaiting();
  }

  #settleLayout(id: number, result: Layout): void {
    const asked = this.#queries.find((each) => each.id === id);
    if (!asked) return;
    this.#queries = this.#queries.filter((each) => each !== asked);
    asked.unwatch();
    asked.settle(result);
  }

  #encoded(id: number, result: Encoded): void {
    if (this.#running?.id !== id) return;
    this.#options.backoff.reset();
    this.#settleRunning(result);
    this.#next();
  }

  /** Returns whether an image was being encoded. */
  #settleRunning(result: Encoded): boolean {
    const running = this.#running;
    if (!running) return false;
    this.#running = undefined;
    running.unwatch();
    this.#waiting.done(running.item, this.#options.clock.now() - running.since);
    running.item.task.settle(result);
    return true;
  }

  #ended(why: VisionEnd): void {
    const { backoff, clock, log, model } = this.#options;
    const process = this.#process;
    this.#process = undefined;
    // The image that was being encoded, else the size that was to be counted first.
    const wasEncoding = this.#settleRunning({ kind: 'failed' });
    for (const [at, { settle, unwatch }] of this.#queries.splice(0).entries()) {
      unwatch();
      settle({ kind: wasEncoding || at > 0 ? 'unavailable' : 'failed' });
    }
    if (this.#state === 'lost') return;
    // One that ended before it was ready may do so again, and the images' requests hold seats.
    if (this.#state !== 'ready') this.#failWaiting();
    this.#state = 'cold';
    const waitMs = backoff.next();
    this.#estimate.forksAt(clock.now() + waitMs);
    const reason = this.#problem === undefined ? why : `unable: ${this.#problem}`;
    log.error('vision lost', { model, reason, retryAfterMs: Math.round(waitMs) });
    // Only when its memory is free again.
    this.#cancelStart = clock.after(waitMs, () => void process?.child.exited.then(() => this.#fork()));
  }

  #failWaiting(): void {
    for (const { task } of this.#waiting.clear()) task.settle({ kind: 'failed' });
    for (const { settle, unwatch } of this.#queries.splice(0)) {
      unwatch();
      settle({ kind: 'failed' });
    }
  }
}
