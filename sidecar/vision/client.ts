/**
 * The sidecar's side of a model's vision process: it sends one image after another, remembers layouts, detects hung images and
 * starts the process again when it ends. The image that it was encoding fails; those that wait are sent to the next process.
 * Sizes that were asked for are `unavailable`; if it was encoding nothing, the first of them is `failed`: it may have caused the end.
 */
import { randomBytes } from 'node:crypto';
import type { Clock } from '../lib/clock.js';
import { LoadEstimate } from '../lib/load-estimate.js';
import type { CacheScope } from '../../engine/protocol/cache-key.js';
import { ClosedScopes } from '../../engine/protocol/closed-scopes.js';
import type { VisionSetup } from '../../engine/protocol/vision-messages.js';
import type { Forked, Message, VisionClientOptions } from './client-options.js';
import { START_TIMEOUT_MS, VisionProcess, type VisionEnd, type VisionProcessEvents } from './process.js';
import type { EncodeTask, Encoded, Encoding, HostedVision, Layout, Size, VisionFacts, VisionState } from './vision.js';
import { WaitingImages } from './waiting-images.js';

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

interface LayoutQuery {
  readonly id: number;
  readonly settle: (result: Layout) => void;
  readonly size: Size;
  readonly unwatch: () => void;
}

interface Item {
  readonly task: EncodeTask;
  readonly settle: (result: Encoded) => void;
}

export class VisionClient implements HostedVision {
  readonly maxTokens: number;
  readonly secret = randomBytes(32);
  readonly #options: VisionClientOptions;
  #state: VisionState = 'cold';
  /** Why the present process cannot start, one line for the operator. */
  #problem: string | undefined;
  #facts: VisionFacts | undefined;
  #process: Forked | undefined;
  #started = false;
  readonly #estimate = new LoadEstimate(START_TIMEOUT_MS);
  #cancelStart: () => void = () => undefined;
  #nextId = 1;
  readonly #layouts = new Map<string, Promise<Layout>>();
  #queries: LayoutQuery[] = [];
  readonly #waiting = new WaitingImages<Item>();
  readonly #closed = new ClosedScopes();
  #running: { readonly id: number; readonly item: Item; readonly unwatch: () => void } | undefined;

  constructor(options: VisionClientOptions) {
    this.#options = options;
    this.maxTokens = options.setup.maxTokens ?? MAX_TOKENS;
  }

  get state(): VisionState {
    return this.#state;
  }

  get facts(): VisionFacts | undefined {
    return this.#facts;
  }

  get readyInMs(): number {
    return this.#state === 'ready' ? 0 : this.#estimate.readyInMs(this.#options.clock.now());
  }

  start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#fork();
  }

  forget(scope: CacheScope): void {
    this.#closed.close(scope);
    if (this.#state === 'ready') this.#process?.send({ kind: 'forget', scope });
  }

  close(): void {
    this.#started = true;
    this.#state = 'lost';
    this.#cancelStart();
    this.#process?.kill('closed');
    this.#fail();
  }

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
      const unwatch = this.#options.clock.after(LAYOUT_MS, () => process.kill('hang'));
      this.#queries.push({ id, settle, size, unwatch });
    });
    this.#layouts.set(key, asked);
    void asked.then(({ kind }) => kind === 'layout' || this.#layouts.delete(key));
    process.send({ kind: 'layout', id, size });
    return asked;
  }

  encode(task: EncodeTask, account: string): Encoding {
    let settle: Item['settle'] = () => undefined;
    const result = new Promise<Encoded>((resolve) => (settle = resolve));
    const item: Item = { task, settle };
    const isRefused = this.#state === 'lost' || this.#waiting.size >= MAX_WAITING;
    if (isRefused) settle({ kind: 'failed' });
    else this.#waiting.add(account, item);
    this.#next();
    return { result, cancel: () => this.#waiting.remove(account, item) };
  }

  #fork(): void {
    const { setup, clock, fork = forked } = this.#options;
    this.#estimate.forked(clock.now());
    this.#problem = undefined;
    this.#process = fork(setup, clock, {
      message: (message) => this.#received(message),
      gone: (why) => this.#gone(why),
    });
  }

  #next(): void {
    if (this.#state !== 'ready' || this.#running || !this.#process) return;
    const process = this.#process;
    const item = this.#waiting.next();
    if (!item) return;
    const id = this.#nextId++;
    const unwatch = this.#options.clock.after(ENCODE_MS, () => process.kill('hang'));
    this.#running = { id, item, unwatch };
    process.send({ kind: 'encode', id, task: item.task });
  }

  #received(message: Message): void {
    switch (message.kind) {
      case 'ready':
        this.#ready(message.facts);
        return;
      case 'unable':
        this.#unable(message);
        return;
      case 'layout':
        this.#settleLayout(message.id, { kind: 'layout', parts: message.parts });
        return;
      case 'encoded':
        this.#encoded(message.id, { kind: 'encoded', embeddings: message.embeddings });
        return;
      case 'refused':
        this.#settleLayout(message.id, { kind: 'failed' });
        this.#encoded(message.id, { kind: message.why });
        return;
      case 'heartbeat':
    }
  }

  #ready(facts: VisionFacts): void {
    const { log, model } = this.#options;
    // Another projector under the same name.
    if (this.#facts?.projectorVersion !== facts.projectorVersion) this.#layouts.clear();
    this.#facts = facts;
    this.#state = 'ready';
    this.#estimate.ready(this.#options.clock.now());
    const { pid } = this.#process ?? {};
    log.info('vision ready', { model, ...(pid !== undefined && { pid }) });
    const { filtered, bounded } = facts.confinement;
    if (!filtered || !bounded) log.warn('vision is not confined', { model });
    // Images of these accounts may wait.
    for (const scope of this.#closed) this.#process?.send({ kind: 'forget', scope });
    this.#next();
  }

  #unable({ reason, mayMend }: Extract<Message, { kind: 'unable' }>): void {
    const { log, model } = this.#options;
    this.#problem = reason;
    if (mayMend) return;
    this.#state = 'lost';
    log.error('vision cannot serve its model', { model, reason });
    this.#fail();
  }

  #settleLayout(id: number, result: Layout): void {
    const asked = this.#queries.find((each) => each.id === id);
    if (!asked) return;
    this.#queries = this.#queries.filter((each) => each !== asked);
    asked.unwatch();
    asked.settle(result);
  }

  #encoded(id: number, result: Encoded): void {
    const running = this.#running;
    if (running?.id !== id) return;
    this.#running = undefined;
    this.#options.backoff.reset();
    running.unwatch();
    running.item.settle(result);
    this.#next();
  }

  #gone(why: VisionEnd): void {
    const { backoff, clock, log, model } = this.#options;
    this.#process = undefined;
    // The image that was being encoded, else the size that was to be counted first.
    const encoding = this.#running;
    this.#running = undefined;
    encoding?.unwatch();
    encoding?.item.settle({ kind: 'failed' });
    for (const [at, { settle, unwatch }] of this.#queries.splice(0).entries()) {
      unwatch();
      settle({ kind: encoding || at > 0 ? 'unavailable' : 'failed' });
    }
    if (this.#state === 'lost') return;
    // One that ended before it was ready may do so again, and the images' requests hold seats.
    if (this.#state !== 'ready') this.#fail();
    this.#state = 'cold';
    const waitMs = backoff.next();
    this.#estimate.forksAt(clock.now() + waitMs);
    const reason = this.#problem === undefined ? why : `unable: ${this.#problem}`;
    log.error('vision lost', { model, reason, retryAfterMs: Math.round(waitMs) });
    this.#cancelStart = clock.after(waitMs, () => this.#fork());
  }

  #fail(): void {
    for (const { settle } of this.#waiting.take()) settle({ kind: 'failed' });
    for (const { settle, unwatch } of this.#queries.splice(0)) {
      unwatch();
      settle({ kind: 'failed' });
    }
  }
}

function forked(setup: VisionSetup, clock: Clock, events: VisionProcessEvents): Forked {
  return new VisionProcess(setup, clock, events);
}
