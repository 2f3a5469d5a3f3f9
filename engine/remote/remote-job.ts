import type { Output } from '../protocol/jobs.js';
import type { Flight } from './flights.js';

/** A job's items (replies, questions), each of which is a request of its own. */
export interface RemoteWork {
  readonly items: number;
  readonly seats: number;
  /** Each item's prompt counts by itself, and so does what of it was not computed again. Absent: the prompt counts once. */
  readonly countsEach?: boolean;
  /** Tokens that an item may take of the server's memory: prompt and reply. */
  tokens(item: number): number;
}

/** How often an item that the server did not take is tried again, once others of its job run. */
const MAX_TRIES = 3;

/** One job's items: which run, and how many seats it still needs. Does no I/O. */
export class RemoteJob<W extends RemoteWork = RemoteWork> {
  readonly id: number;
  readonly work: W;
  readonly flights = new Map<Flight, number>();
  started = false;
  /** Prompt tokens of all items that the server did not compute again, as far as it told them at their beginning. */
  cached = 0;
  /** The sidecar counts its seats as in use: it has not ended, or was cancelled and is not confirmed. */
  leased = true;
  #leaving = 0;
  #onGone: (() => void) | undefined;
  #seats: number;
  #limit: number;
  #next = 0;
  #ended = 0;
  /** Items to be tried again, and how often each was tried. */
  readonly #again: number[] = [];
  readonly #tries = new Map<number, number>();

  constructor(id: number, work: W) {
    this.id = id;
    this.work = work;
    this.#seats = this.#limit = Math.min(work.seats, work.items);
  }

  /** Requests of it that were closed and are not confirmed. */
  get leaving(): number {
    return this.#leaving;
  }

  get seats(): number {
    return this.#seats;
  }

  get done(): boolean {
    return this.#ended === this.work.items;
  }

  /** The outputs that the engine process sends to the sidecar once the job is {@link done}. */
  lastOutputs(): Output[] {
    const { id } = this;
    const done: Output = { id, kind: 'done' };
    return this.work.countsEach === true ? [{ id, kind: 'cached', tokens: this.cached }, done] : [done];
  }

  /** The item that may start beside those that run; undefined if none may now. */
  get next(): number | undefined {
    if (this.#busy >= this.#limit) return undefined;
    return this.#again[0] ?? (this.#next < this.work.items ? this.#next : undefined);
  }

  /** Starts {@link next}. */
  take(): number {
    const again = this.#again.shift();
    return again ?? this.#next++;
  }

  begin(item: number, flight: Flight): void {
    this.flights.set(flight, item);
  }

  /** The server did not take it. Returns whether it is tried again. */
  retry(item: number): boolean {
    const tries = (this.#tries.get(item) ?? 0) + 1;
    this.#tries.set(item, tries);
    if (tries >= MAX_TRIES) return false;
    this.#again.push(item);
    return true;
  }

  /** One item is complete. The server may still compute it, as one that leaves. */
  end(): void {
    this.#ended += 1;
  }

  /** The job continues with one seat less, its last one excepted. */
  reduceSeats(): void {
    this.#limit = Math.max(1, this.#limit - 1);
  }

  /** A request of it was closed. */
  leave(): void {
    this.#leaving += 1;
  }

  /** The server computes nothing more of such a request. */
  left(): void {
    this.#leaving -= 1;
    if (this.#leaving === 0) this.#onGone?.();
  }

  /** `gone`: called once the server computes nothing of it, which may be now. */
  whenGone(gone: () => void): void {
    if (this.#leaving > 0) this.#onGone = gone;
    else gone();
  }

  /** Frees the seats that it will not need again and returns their number. Not if it is done, which frees all. */
  releaseSpare(): number {
    const needed = Math.max(1, this.#busy, Math.min(this.work.items - this.#ended, this.#limit));
    const spare = Math.max(0, this.#seats - needed);
    this.#seats -= spare;
    return spare;
  }

  /** Seats that requests of it take. */
  get #busy(): number {
    return this.flights.size + this.#leaving;
  }
}
