import { SeatQueue, type QueueOptions } from '../../sidecar/admission/queue.js';
import type { Lease, Refused, Ticket } from '../../sidecar/admission/types.js';
import type { QueueReport } from '../../sidecar/admission/report.js';
import type { ReplicaSize } from '../../sidecar/admission/seats.js';
import { FakeClock } from './fake-clock.js';
import { seeded } from './gbnf.js';

/** An account’s stream of requests. Times in ms. */
export interface Load {
  readonly account: string;
  readonly weight?: number;
  /** Of the class of its key; absent: `weight`. */
  readonly ownWeight?: number;
  /** Users' labels, in turn. */
  readonly users?: readonly string[];
  /** Mean time between two arrivals, which are random (Poisson). */
  readonly everyMs: number;
  /** Requests that arrive together each time; absent: one. */
  readonly atOnce?: number;
  /** Seat time of a request: uniform between half of it and one and a half. */
  readonly holdMs: number;
  /** From arrival until no caller waits for the answer. */
  readonly deadlineMs?: number;
  /** After so much time from arrival its callers disconnect, if they do not have the whole reply; absent: they stay. */
  readonly patienceMs?: number;
  /** Tokens that a request's seat has to hold; absent: any seat will do. */
  readonly seatTokens?: number;
  /** What its callers wait for; absent: they do not say. A stream's callers leave no more once it has begun. */
  readonly awaits?: 'first-token' | 'end';
  /** After how many ms a refused request comes again, once; undefined: not at all. */
  readonly comesBack?: (refused: Refused) => number | undefined;
  /** When it begins and ends. */
  readonly fromMs?: number;
  readonly untilMs?: number;
}

/** The outcome of one request. */
export interface Fate {
  readonly account: string;
  readonly at: number;
  readonly user: string | undefined;
  readonly weight: number;
  /** As in its load. */
  readonly seatTokens: number | undefined;
  /** It was refused before. */
  readonly again: boolean;
  /** `done`: within its deadline; `late`: cut at it while it ran; `left`: its caller disconnected. */
  end: 'done' | 'late' | 'left' | Refused['reason'] | undefined;
  waitedMs: number;
  seatMs: number;
}

/** Until when a request is served. Times on the harness’s clock, but for `needMs`. */
interface Serving {
  readonly needMs: number;
  readonly deadlineAt: number | undefined;
  readonly leavesAt: number;
  readonly awaits: Load['awaits'];
}

const RELEASES = { done: 'done', late: 'deadline', left: 'cancelled' } as const;

/** To the first token, of a request's seat time. */
const PREFILL = 0.05;
/** Tokens of every prompt. */
const PROMPT_TOKENS = 1000;

export const SEATS = 4;
const CONFIG = { maxWaitMs: 10_000, waitingPerSeat: 8, waitingBytes: 1e9 };

/** Random loads of a queue on a fake clock: the requests, their outcomes, and seat time by use. */
export class SeatHarness {
  readonly clock = new FakeClock();
  readonly queue: SeatQueue;
  readonly fates: Fate[] = [];
  readonly #random: () => number;
  readonly #isWhole: boolean;

  /** `wholeMs`: all times are whole milliseconds, so that sums of them are exact in any order. */
  constructor(
    seed: number,
    {
      wholeMs = false,
      ...options
    }: Partial<Omit<QueueOptions, 'seats'>> & {
      readonly seats?: number | readonly ReplicaSize[];
      readonly wholeMs?: boolean;
    } = {},
  ) {
    this.#isWhole = wholeMs;
    this.#random = seeded(seed);
    this.queue = new SeatQueue({
      clock: this.clock,
      random: this.#random,
      config: CONFIG,
      seats: SEATS,
      ...options,
    });
  }

  offer(load: Load): void {
    const gap = this.#ms(-Math.log(1 - this.#random()) * load.everyMs);
    const from = Math.max(0, (load.fromMs ?? 0) - this.clock.now());
    let turn = 0;
    const again = (): void => {
      if (this.clock.now() >= (load.untilMs ?? Infinity)) return;
      for (let i = 0; i < (load.atOnce ?? 1); i += 1) this.#arrive(load, turn++);
      this.clock.after(this.#ms(-Math.log(1 - this.#random()) * load.everyMs), again);
    };
    this.clock.after(from + gap, again);
  }

  /** Lets time pass, event by event, so that outcomes are delivered in between. `watch` sees the queue after each. */
  async run(ms: number, watch?: (report: QueueReport) => void): Promise<void> {
    const end = this.clock.now() + ms;
    while (this.clock.step(end)) {
      for (let i = 0; i < 4; i += 1) await Promise.resolve();
      watch?.(this.queue.report(100));
    }
  }

  /** Of requests that arrived between two times. */
  of(account: string | undefined, from = 0, until = Infinity): Fate[] {
    return this.fates.filter((fate) => {
      return (account === undefined || fate.account === account) && fate.at >= from && fate.at < until;
    });
  }

  /** Useful seat time of an account, ms. */
  usefulMs(account?: string): number {
    return this.of(account).reduce((sum, { end, seatMs }) => sum + (end === 'done' ? seatMs : 0), 0);
  }

  #ms(ms: number): number {
    return this.#isWhole ? Math.ceil(ms) : ms;
  }

  #arrive(load: Load, turn: number, again = false): void {
    const { account, weight = 4, users, holdMs, deadlineMs, patienceMs = Infinity, seatTokens, ownWeight } = load;
    const { awaits, comesBack } = load;
    const at = this.clock.now();
    const user = users?.[turn % users.length];
    const fate: Fate = { account, at, user, weight, seatTokens, again, end: undefined, waitedMs: 0, seatMs: 0 };
    this.fates.push(fate);
    const needMs = this.#ms(holdMs * (0.5 + this.#random()));
    const deadlineAt = deadlineMs === undefined ? undefined : at + deadlineMs;
    const ticket = this.queue.enter({
      account,
      weight,
      ...(ownWeight !== undefined && { ownWeight }),
      bytes: 1,
      seatsWanted: 1,
      ...(user !== undefined && { user }),
      ...(deadlineAt !== undefined && { deadlineAt }),
      ...(awaits !== undefined && { awaits }),
      ...(comesBack !== undefined && { bodyDigest: `${account} ${turn}` }),
    });
    const refused = (refusal: Refused): void => {
      fate.end = refusal.reason;
      const afterMs = again ? undefined : comesBack?.(refusal);
      if (afterMs !== undefined) this.clock.after(afterMs, () => this.#arrive(load, turn, true));
    };
    if ('kind' in ticket) {
      refused(ticket);
      return;
    }
    ticket.ready({
      promptTokens: PROMPT_TOKENS,
      ...(seatTokens !== undefined && { seatTokens }),
    });
    let waits = true;
    void ticket.outcome.then((outcome) => {
      waits = false;
      if (outcome.kind === 'refused') refused(outcome);
      if (outcome.kind === 'seated')
        this.#serve(fate, ticket, outcome.lease, { needMs, deadlineAt, leavesAt: at + patienceMs, awaits });
    });
    if (patienceMs === Infinity) return;
    this.clock.after(patienceMs, () => {
      if (!waits) return;
      fate.end = 'left';
      ticket.cancel('disconnected');
    });
  }

  #serve(fate: Fate, ticket: Ticket, lease: Lease, serving: Serving): void {
    const { needMs, deadlineAt = Infinity, awaits } = serving;
    const startedAt = this.clock.now();
    fate.waitedMs = startedAt - fate.at;
    const firstMs = awaits === 'first-token' ? this.#ms(needMs * PREFILL) : Infinity;
    const begins = startedAt + firstMs < serving.leavesAt && firstMs < Infinity;
    if (begins) this.clock.after(firstMs, () => lease.begun());
    const leavesAt = begins ? Infinity : serving.leavesAt;
    const least = Math.min(needMs, deadlineAt - startedAt, leavesAt - startedAt);
    const end = least === needMs ? 'done' : least === deadlineAt - startedAt ? 'late' : 'left';
    this.clock.after(least, () => {
      fate.end = end;
      if (end === 'left') ticket.cancel('disconnected');
      fate.seatMs = this.clock.now() - startedAt;
      lease.release(RELEASES[end]);
    });
  }
}

/** The share of requests with this outcome. */
export function share(fates: readonly Fate[], ...ends: readonly Fate['end'][]): number {
  return fates.filter(({ end }) => ends.includes(end)).length / fates.length;
}
