/** The jobs of a server and their requests: those that it is to compute, and those whose connections were closed. Does no I/O. */
import type { Clock } from '../protocol/clock.js';
import type { Output, ReplyLimit } from '../protocol/jobs.js';
import type { RemoteSetup } from '../protocol/setup.js';

/** One request to a server, for one item of a job: a reply or a question's answer. */
export interface Flight {
  /** The server's name for it. */
  readonly name: string;
  /** The server is known to have taken it. */
  readonly begun: boolean;
  /** As in {@link Reply} (scheduler/reply.ts). Absent: it is no reply. */
  limit?(limit: ReplyLimit): void;
  /** Closes its connection; no event follows. Idempotent. */
  close(): void;
}

/** Called in order. After one of the last five nothing is called. */
export interface FlightEvents {
  /** At most once. `cached`: absent, not known yet. */
  begun(cached: number | undefined): void;
  outputs(outputs: readonly Output[]): void;
  /** Known after `begun`. */
  cached(tokens: number): void;
  /** The server has computed more of it: of its prompt, or a token. Other bytes, such as comments, prove nothing. */
  moved(what: 'prompt' | 'token'): void;
  /** The item is complete, and the server has ended it too. */
  done(): void;
  /** The item is complete, and its connection is closed; the server may still compute it. */
  complete(): void;
  /** The server refuses further requests for now. */
  busy(): void;
  /** The connection ended too early: the server may have ended. */
  broken(): void;
  failed(why: string): void;
}

/** What a job consists of: items (replies, questions), each of which is a request of its own. */
export interface RemoteWork {
  readonly items: number;
  readonly seats: number;
  /** Each item's prompt counts by itself, and so does what of it was not computed again. Absent: the prompt counts once. */
  readonly countsEach?: boolean;
  /** Tokens that an item may take of the server's memory: prompt and reply. */
  tokens(item: number): number;
  /** Sends an item, by this name. */
  begin(item: number, name: string, events: FlightEvents): Flight;
  /** Of its replies, those that begin from now on. Absent: it has none. */
  limit?(limit: ReplyLimit): void;
}

/** How often an item that the server did not take is tried again, once others of its job run. */
const MAX_TRIES = 3;

/** One job's items: which run, and how many seats it still needs. */
export class RemoteJob {
  readonly id: number;
  readonly work: RemoteWork;
  readonly flights = new Set<Flight>();
  /** Requests of it that were closed and are not confirmed. */
  leaving = 0;
  started = false;
  /** `cancelled` is to be sent once the server computes nothing of it. */
  cancelled = false;
  /** Prompt tokens of all items that the server did not compute again, as far as it told them at their beginning. */
  cached = 0;
  /** The sidecar counts its seats as in use: it has not ended, or was cancelled and is not confirmed. */
  leased = true;
  #seats: number;
  #limit: number;
  #next = 0;
  #ended = 0;
  /** Items to be tried again, and how often each was tried. */
  readonly #again: number[] = [];
  readonly #tries = new Map<number, number>();

  constructor(id: number, work: RemoteWork) {
    this.id = id;
    this.work = work;
    this.#seats = this.#limit = Math.min(work.seats, work.items);
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

  /** Frees the seats that it will not need again and returns their number. Not if it is done, which frees all. */
  releaseSpare(): number {
    const needed = Math.max(1, this.#busy, Math.min(this.work.items - this.#ended, this.#limit));
    const spare = Math.max(0, this.#seats - needed);
    this.#seats -= spare;
    return spare;
  }

  /** Seats that requests of it take. */
  get #busy(): number {
    return this.flights.size + this.leaving;
  }
}

/** A request that was sent this long ago has reached the server, ms. */
const REACHED_MS = 250;

/** As in `RemoteSetup`; a closed request that is unconfirmed for `cancelWaitMs` is given up, and counted. */
export type FlightLimits = Pick<RemoteSetup, 'silentMs' | 'tokenMs' | 'cancelWaitMs'>;

/** A request, from when it is sent until the server is known not to compute it any more. */
export interface Sent {
  readonly flight: Flight;
  readonly job: RemoteJob;
  /** Tokens that it may take of the server's memory. */
  readonly tokens: number;
  readonly sentAt: number;
  /** When the server had last computed more of it, and how long the next time may take, ms. */
  movedAt: number;
  limitMs: number;
  /** When its connection was closed. */
  closedAt: number;
}

/**
 * The requests that the server is to compute, and those whose connections were closed: a closed connection does not prove that a server's
 * sequence is free. They are gone once the server runs no more requests than are still wanted, or is at rest. Together at most as many
 * as seats.
 */
export class Flights {
  readonly #clock: Clock;
  readonly #limits: FlightLimits;
  readonly #inFlight = new Map<Flight, Sent>();
  /** In the order in which they were closed. */
  readonly #leaving = new Set<Sent>();
  #unconfirmed = 0;

  constructor(clock: Clock, limits: FlightLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** Requests that the server is to compute, those of them that have reached it, and closed ones. */
  get counts(): { readonly flights: number; readonly reached: number; readonly leaving: number } {
    const now = this.#clock.now();
    const reached = [...this.#inFlight.values()].filter((sent) => reachedAt(sent) <= now).length;
    return { flights: this.#inFlight.size, reached, leaving: this.#leaving.size };
  }

  /** All that the server may be computing. */
  get live(): number {
    return this.#inFlight.size + this.#leaving.size;
  }

  /** Tokens of the requests that the server is to compute. */
  get tokens(): number {
    return sumOf(this.#inFlight.values());
  }

  get leavingTokens(): number {
    return sumOf(this.#leaving);
  }

  /** Closed requests whose seats the sidecar counts as free. */
  get unleased(): number {
    return [...this.#leaving].filter(({ job }) => !job.leased).length;
  }

  /** Closed requests so far that were given up. */
  get unconfirmed(): number {
    return this.#unconfirmed;
  }

  add(flight: Flight, job: RemoteJob, tokens: number): void {
    const now = this.#clock.now();
    const { silentMs: limitMs } = this.#limits;
    this.#inFlight.set(flight, { flight, job, tokens, sentAt: now, movedAt: now, limitMs, closedAt: Infinity });
  }

  /** The server has ended it, or did not take it. */
  land(flight: Flight): void {
    this.#inFlight.delete(flight);
  }

  /** Its connection was closed, and the server may continue computing it. */
  leave(flight: Flight): void {
    const sent = this.#inFlight.get(flight);
    if (!sent) return;
    this.#inFlight.delete(flight);
    sent.closedAt = this.#clock.now();
    this.#leaving.add(sent);
  }

  moved(flight: Flight, what: 'prompt' | 'token'): void {
    const sent = this.#inFlight.get(flight);
    if (!sent) return;
    sent.movedAt = this.#clock.now();
    if (what === 'token') sent.limitMs = this.#limits.tokenMs;
  }

  /** Those of which the server has not computed more for too long. */
  silent(): readonly Sent[] {
    const now = this.#clock.now();
    return [...this.#inFlight.values()].filter(({ movedAt, limitMs }) => now - movedAt > limitMs);
  }

  /**
   * The server computed or queued `running` requests at the clock reading `at` or later, of which at least `wanted` had
   * reached it and are still wanted. The oldest closed ones are gone first. Returns those that are gone, each once.
   */
  confirm(running: number, wanted: number, at: number): readonly Sent[] {
    // One that has not reached the server may still come to run.
    const reached = [...this.#leaving].filter((sent) => reachedAt(sent) <= at);
    const still = Math.max(0, running - wanted);
    return this.#gone(reached.slice(0, Math.max(0, reached.length - still)));
  }

  /** The server computes nothing, whatever it counts: those that were closed before this clock reading are gone. */
  rested(before: number): readonly Sent[] {
    return this.#gone(this.#closedBefore(before));
  }

  /** Gives up what has been awaited for too long: it counts as gone. */
  expire(): readonly Sent[] {
    const expired = this.#closedBefore(this.#clock.now() - this.#limits.cancelWaitMs);
    this.#unconfirmed += expired.length;
    return this.#gone(expired);
  }

  close(): void {
    for (const flight of this.#inFlight.keys()) flight.close();
  }

  #closedBefore(before: number): readonly Sent[] {
    return [...this.#leaving].filter(({ closedAt }) => closedAt <= before);
  }

  #gone(all: readonly Sent[]): readonly Sent[] {
    for (const sent of all) this.#leaving.delete(sent);
    return all;
  }
}

/** Clock reading from which on the server is known to have got it. */
function reachedAt({ flight, sentAt }: Sent): number {
  return flight.begun ? 0 : sentAt + REACHED_MS;
}

function sumOf(all: Iterable<Sent>): number {
  let sum = 0;
  for (const { tokens } of all) sum += tokens;
  return sum;
}
