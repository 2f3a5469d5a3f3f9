import type { Clock } from '../lib/clock.js';
import type { Try } from '../telemetry/tracing.js';

const NONE: readonly Try[] = [];

/**
 * When what happened to one request, as clock readings, and what Server-Timing says of it. A mark is one number: most
 * requests are asked for none of them.
 */
export class Timeline {
  readonly #clock: Clock;
  /** The head was there. */
  readonly startedAt: number;
  /** The body's last byte. */
  receivedAt: number | undefined;
  #authorizedFrom = 0;
  #authorizedUntil: number | undefined;
  /** Clock reading since when it waits for a seat; undefined while it does not. */
  #waitingSince: number | undefined;
  /** Milliseconds of waiting that are over. */
  #waitedMs = 0;
  #readyAt: number | undefined;
  #seatedAt: number | undefined;
  #replica: number | undefined;
  #handedOverAt: number | undefined;
  #firstTokenAt: number | undefined;
  #ranUntil: number | undefined;
  /** Made when it is needed: hardly any request has one. */
  #lost: Try[] | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.startedAt = clock.now();
  }

  /** The key was checked here, since `from`. */
  authorized(from: number): void {
    this.#authorizedFrom = from;
    this.#authorizedUntil = this.#clock.now();
  }

  /** The last check has passed, or the engine lost the request before it began: it waits for a seat. */
  waits(): void {
    const { last } = this;
    if (last) (this.#lost ??= []).push(last);
    this.#waitingSince = this.#readyAt = this.#clock.now();
    this.#seatedAt = this.#ranUntil = undefined;
  }

  /** It has a seat of this replica, after waiting for so many ms in all. */
  seated(waitedMs: number, replica: number): void {
    this.#replica = replica;
    this.#waitingSince = undefined;
    this.#waitedMs = waitedMs;
    this.#seatedAt = this.#clock.now();
  }

  /** The job goes to the engine. */
  handedOver(): void {
    this.#handedOverAt = this.#clock.now();
  }

  /** The first token, or what stands for it, is there. */
  firstToken(): void {
    this.#firstTokenAt ??= this.#clock.now();
  }

  /** The engine is done with the job, or lost it before it began. */
  ran(): void {
    this.#ranUntil = this.#clock.now();
  }

  /** Whether a first token came. */
  get begun(): boolean {
    return this.#firstTokenAt !== undefined;
  }

  /** Milliseconds from the body's last byte to the first token. */
  get ttftMs(): number | undefined {
    if (this.#firstTokenAt === undefined || this.receivedAt === undefined) return undefined;
    return this.#firstTokenAt - this.receivedAt;
  }

  /** Milliseconds of waiting for a seat up to `now`, those that were or are in vain included. */
  queuedMs(now: number): number {
    return this.#waitedMs + (now - (this.#waitingSince ?? now));
  }

  /** The check of the key. */
  get authorization(): { readonly from: number; readonly until: number } | undefined {
    return this.#authorizedUntil === undefined
      ? undefined
      : { from: this.#authorizedFrom, until: this.#authorizedUntil };
  }

  /** The last try at a seat and the engine; undefined: none was made. */
  get last(): Try | undefined {
    if (this.#readyAt === undefined) return undefined;
    const since = this.#readyAt;
    const sinceThen = (at: number | undefined): number | undefined =>
      at !== undefined && at >= since ? at : undefined;
    return {
      readyAt: this.#readyAt,
      seatedAt: this.#seatedAt,
      replica: this.#seatedAt === undefined ? undefined : this.#replica,
      // Server-Timing keeps that of an earlier try.
      handedOverAt: this.#seatedAt === undefined ? undefined : sinceThen(this.#handedOverAt),
      firstTokenAt: this.#firstTokenAt,
      ranUntil: this.#ranUntil,
    };
  }

  /** Those before it. */
  get lost(): readonly Try[] {
    return this.#lost ?? NONE;
  }

  /** The Server-Timing header: what came before the model. `ra-admit` leaves the wait for a seat out. */
  header(): string {
    const now = this.#clock.now();
    const queueMs = this.queuedMs(now);
    const until = this.#handedOverAt ?? now;
    const admitMs = Math.max(0, until - (this.receivedAt ?? until) - queueMs);
    const checked = this.authorization;
    const authorize = checked === undefined ? '' : `authorize;dur=${ms(checked.until - checked.from)}, `;
    return `${authorize}ra-queue;dur=${ms(queueMs)}, ra-admit;dur=${ms(admitMs)}`;
  }

  /** The Server-Timing trailer, once there was a first token. */
  trailer(): string | undefined {
    return this.ttftMs === undefined ? undefined : `ra-ttft;dur=${ms(this.ttftMs)}`;
  }
}

/** At most three decimals, as docs/contract.md#server-timing asks. */
function ms(value: number): string {
  return String(Math.round(value * 1000) / 1000);
}
