/**
 * What the store holds for requests of this sidecar until they end: places of limits, tokens of quotas, Idempotency-Keys.
 *
 *     begin ──> held ──end──> ended ──the store has answered──> gone
 *       ├──none: the store holds nothing for it
 *       └──lost: no answer ──two beats later──> ended, with `none`
 *
 * Ends are sent together, in the background, again and again until the store has answered: nothing waits for them. A call whose
 * answer was lost may still arrive at the store. It is void once the store has counted two beats more of this replica, and only then
 * is taken back what it may have left. What is remembered is bounded by the requests that the store let in.
 */
import type { Clock } from '../lib/clock.js';
import type { Position } from '../usage/spool-format.js';
import type { Database } from './database.js';
import type { Replica, Session } from './replica.js';

/** Ends that are sent in one call; the others follow in the next. */
const TOGETHER = 1000;

/** The wait after a call that failed, ms. */
const AGAIN_MS = 250;

const VOID_AFTER_BEATS = 2;

/** What is held for one request. */
interface Held {
  /** What it is held by: 128 bits in hexadecimal each. */
  readonly keys: readonly string[];
  /** The store's count of beats when it was asked. */
  readonly beat: number;
  /** Where the spool was; the request's records come after it. */
  readonly from: Position | undefined;
}

interface Ended<T> extends Held {
  readonly how: T;
}

export interface EndsOptions<T> {
  readonly clock: Clock;
  readonly database: Database;
  readonly replica: Replica;
  /** The function of the store that takes ends. */
  readonly fn: 'release' | 'finish' | 'settle_tokens';
  /** How a request ends of which it is not known whether the store held something. */
  readonly none: T;
}

/** The requests of this sidecar that hold something of one kind. `T`: how they end. */
export class Ends<T extends boolean | number> {
  readonly #options: EndsOptions<T>;
  /** In the order of their numbers. */
  readonly #live = new Map<number, Held>();
  readonly #ended = new Map<number, Ended<T>>();
  readonly #lost = new Set<number>();
  #epoch = 0;
  #sending: Promise<void> | undefined;
  #cancelTimer = (): void => undefined;

  constructor(options: EndsOptions<T>) {
    this.#options = options;
    options.replica.onBeat((session) => this.#beaten(session));
  }

  /** Requests for which the store holds something, or may hold something. */
  get size(): number {
    return this.#live.size;
  }

  /** The lowest number of these; above all numbers so far if there are none. */
  get oldest(): number {
    return this.#live.keys().next().value ?? this.#options.replica.lastNumber + 1;
  }

  /** Where the spool was when the oldest of these began; undefined if there are none. */
  get oldestFrom(): Position | undefined {
    return this.#live.values().next().value?.from;
  }

  /** The number of a request for which the store is asked now; below those of later calls. */
  begin(keys: readonly string[], beat: number, from?: Position): number {
    const request = this.#options.replica.number();
    this.#live.set(request, { keys, beat, from });
    return request;
  }

  /** The store holds nothing for it. */
  none(request: number): void {
    this.#live.delete(request);
  }

  /** Whether the store holds something for it is not known. */
  lost(request: number): void {
    // Of an earlier epoch there is nothing to take back.
    if (this.#live.has(request)) this.#lost.add(request);
  }

  /** It has ended. Call it once. */
  end(request: number, how: T): void {
    const held = this.#live.get(request);
    if (!held) return;
    this.#ended.set(request, { ...held, how });
    this.#send();
  }

  /** Sends the ends that are known, if the store answers. */
  async close(): Promise<void> {
    this.#cancelTimer();
    await this.#sending;
    if (this.#ended.size > 0) await this.#sendSome();
    this.#cancelTimer();
  }

  #beaten({ epoch, beat }: Session): void {
    if (epoch !== this.#epoch) {
      // What an earlier epoch held is no longer this one's.
      this.#epoch = epoch;
      this.#live.clear();
      this.#ended.clear();
      this.#lost.clear();
    }
    const due = [...this.#lost]
      .map((request) => [request, this.#live.get(request)] as const)
      .filter(([, held]) => held !== undefined && beat >= held.beat + VOID_AFTER_BEATS)
      .slice(0, TOGETHER)
      .map(([request, held]) => [request, { ...(held as Held), how: this.#options.none }] as const);
    if (due.length > 0) void this.#tell(due, true);
  }

  /** Sends ends until there are none. */
  #send(): void {
    if (this.#sending) return;
    this.#cancelTimer();
    const work = async (): Promise<void> => {
      while (this.#ended.size > 0) if (!(await this.#sendSome())) return;
    };
    this.#sending = work().finally(() => {
      this.#sending = undefined;
      if (this.#ended.size > 0) this.#cancelTimer = this.#options.clock.after(AGAIN_MS, () => this.#send());
    });
  }

  #sendSome(): Promise<boolean> {
    return this.#tell([...this.#ended].slice(0, TOGETHER), false);
  }

  /** Whether the store has answered. `doubtful`: calls of these may run now. */
  async #tell(ends: readonly (readonly [request: number, ended: Ended<T>])[], doubtful: boolean): Promise<boolean> {
    const { database, replica, fn } = this.#options;
    const { session } = replica;
    if (!session) return false;
    const answer = await database.call(fn, [
      session.no,
      session.epoch,
      ends.flatMap(([request, { keys }]) => keys.map(() => request)),
      ends.flatMap(([, { keys }]) => keys),
      ends.flatMap(([, { keys, how }]) => keys.map(() => how)),
      doubtful,
    ]);
    if (answer.kind === 'down') return false;
    for (const [request] of ends) {
      this.#live.delete(request);
      this.#ended.delete(request);
      this.#lost.delete(request);
    }
    return true;
  }
}
