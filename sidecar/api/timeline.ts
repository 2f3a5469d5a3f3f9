import type { Clock } from '../lib/clock.js';
import type { Attempt } from '../telemetry/tracing.js';

const NONE: readonly Attempt[] = [];

/** The times of one request's phases, as clock readings, and its Server-Timing. A mark is one number, since most marks are never read. */
export class Timeline {
  readonly #clock: Clock;
  /** The head was read. */
  readonly startedAt: number;
  /** The body's last byte. */
  receivedAt: number | undefined;
  #authorizedFrom = 0;
  #authorizedUntil: number | undefined;
  /** Clock reading since when it waits for a seat; undefined while it does not. */
  #waitingSince: number | undefined;
  /** The sum of its ended waits, ms. */
  #waitedMs = 0;
  #readyAt: number | undefined;
  #seatedAt: number | undefined;
  #replica: number | undefined;
  #handedOverAt: number | undefined;
  /** The sidecar's own work up to the last hand-over before an engine was lost, ms. */
  #admitMs: number | undefined;
  #firstTokenAt: number | undefined;
  #ranUntil: number | undefined;
  /** Created when needed: hardly any request has one. */
  #lost: Attempt[] | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.startedAt = clock.now();
  }

  /** The key was checked, from `from` until now. */
  authorized(from: number): void {
    this.#authorizedFrom = from;
    this.#authorizedUntil = this.#clock.now();
  }

  /** The last check has passed, or the request's attempt was lost or recalled: it waits for a seat. */
  waits(): void {
    const { last } = this;
    if (last) (this.#lost ??= []).push(last);
    this.#waitingSince = this.#readyAt = this.#clock.now();
    this.#seatedAt = this.#handedOverAt = this.#firstTokenAt = this.#ranUntil = undefined;
  }

  /** It has a seat of this replica, after waiting for so many ms in all. */
  seated(waitedMs: number, replica: number): void {
    this.#replica = replica;
    this.#waitingSince = undefined;
    this.#waitedMs = waitedMs;
    this.#seatedAt = this.#clock.now();
  }

  /** The job is sent to the engine. */
  handedOver(): void {
    this.#handedOverAt = this.#clock.now();
    if (this.#lost === undefined) this.#admitMs = this.#ownMs(this.#handedOverAt);
  }

  /** A chat's first token arrived. A decision has none. */
  firstToken(): void {
    this.#firstTokenAt ??= this.#clock.now();
  }

  /** The engine is done with the job, or lost it before it started it, or the job's lent seat was recalled. */
  ran(): void {
    this.#ranUntil = this.#clock.now();
  }

  /** Whether a first token arrived. */
  get begun(): boolean {
    return this.#firstTokenAt !== undefined;
  }

  /** Milliseconds from the body's last byte to the first token. */
  get ttftMs(): number | undefined {
    if (this.#firstTokenAt === undefined || this.receivedAt === undefined) return undefined;
    return this.#firstTokenAt - this.receivedAt;
  }

  /** Milliseconds from when the job was sent to the first token. */
  get prefillMs(): number | undefined {
    if (this.#firstTokenAt === undefined || this.#handedOverAt === undefined) return undefined;
    return this.#firstTokenAt - this.#handedOverAt;
  }

  /** Milliseconds of waiting for a seat up to `now`, waits without a seat included. */
  waitedMs(now: number): number {
    return this.#waitedMs + (now - (this.#waitingSince ?? now));
  }

  get authorization(): { readonly from: number; readonly until: number } | undefined {
    return this.#authorizedUntil === undefined
      ? undefined
      : { from: this.#authorizedFrom, until: this.#authorizedUntil };
  }

  /** The last attempt at a seat and the engine; undefined if there was none. */
  get last(): Attempt | undefined {
    if (this.#readyAt === undefined) return undefined;
    return {
      readyAt: this.#readyAt,
      seatedAt: this.#seatedAt,
      replica: this.#seatedAt === undefined ? undefined : this.#replica,
      handedOverAt: this.#handedOverAt,
      firstTokenAt: this.#firstTokenAt,
      ranUntil: this.#ranUntil,
    };
  }

  /** The attempts before it. */
  get lost(): readonly Attempt[] {
    return this.#lost ?? NONE;
  }

  /** From the body's last byte up to `now`, less the waits for a seat, ms. */
  #ownMs(now: number): number {
    return Math.max(0, now - (this.receivedAt ?? now) - this.waitedMs(now));
  }

  /** The Server-Timing header: the times before the engine. `ra-admit` includes neither the wait for a seat nor a lost engine's time. */
  header(): string {
    const now = this.#clock.now();
    const checked = this.authorization;
    const authorize = checked === undefined ? '' : `authorize;dur=${ms(checked.until - checked.from)}, `;
    return `${authorize}ra-queue;dur=${ms(this.waitedMs(now))}, ra-admit;dur=${ms(this.#admitMs ?? this.#ownMs(now))}`;
  }

  /** The Server-Timing trailer, once there was a first token. */
  trailer(): string | undefined {
    return this.ttftMs === undefined ? undefined : `ra-ttft;dur=${ms(this.ttftMs)}`;
  }
}

/** At most three decimals, as docs/contract.md#server-timing requires. */
function ms(value: number): string {
  return String(Math.round(value * 1000) / 1000);
}
