/** The queue's state as operators and metrics see it. Times in ms. */
import type { RefusalReason } from '../domain/refusal-reasons.js';
import type { ServiceClass } from '../domain/service-class.js';
import type { Account, AccountClass } from './accounts.js';
import type { Overload } from './overload.js';
import type { RetryReservations } from './retry.js';
import type { ReplicaState } from './seats.js';
import type { QueueState } from './state.js';
import type { Awaited, LentCounts, SessionCounts } from './types.js';

export interface QueueSnapshot {
  readonly seats: number;
  readonly busy: number;
  /** Seats that are kept for sessions, and not busy. */
  readonly kept: number;
  readonly waiting: number;
  /** The same by class. An account may have requests of several classes. */
  readonly waitingBy: Readonly<Record<ServiceClass, number>>;
  readonly waitingBytes: number;
  readonly paused: boolean;
  readonly accounts: readonly { readonly account: string; readonly waiting: number; readonly running: number }[];
  readonly refused: Readonly<Partial<Record<RefusalReason, number>>>;
  /** Leases ended, by reason. */
  readonly released: QueueState['released'];
}

/** One account's requests of one class. */
interface ClassReport {
  readonly class: ServiceClass;
  readonly waiting: number;
  /** Busy seats, and seats kept for sessions. */
  readonly running: number;
  readonly kept: number;
  /** Mean seat time of one of these requests; null: none has ended. */
  readonly holdMs: number | null;
  /** The factor that corrects their predictions. */
  readonly calibration: number;
  /** How long one more of them would wait. */
  readonly predictedWaitMs: number;
}

/** One account. `calibration` and `predictedWaitMs` are those of the class that determines its rank. */
interface AccountReport extends Omit<ClassReport, 'class'> {
  readonly account: string;
  /** Of the class that determines its rank: the heaviest with a request to seat, else with one that waits or runs, or last did. */
  readonly weight: number;
  /** Its rank: seat time over weight, the lowest goes next (accounts.ts). */
  readonly virtualMs: number;
  /** Seat time since it was first seen here. */
  readonly seatMs: number;
  /** The classes that it ever used, heaviest first. */
  readonly classes: readonly ClassReport[];
}

/** The times by which 10, 50 and 90 of 100 callers have left; null: fewer are known to leave. */
type PatienceReport = Readonly<Record<'p10' | 'p50' | 'p90', number | null>>;

/** What the queue learned of overload (overload.ts). */
interface OverloadReport {
  /** Requests wait, and for some time more have arrived than the seats, or those that are long enough for them, can serve. */
  readonly standing: boolean;
  /** Recent arrivals for each request that is seated. */
  readonly load: number;
  /** Seat time of callers who left before they had what they waited for, since the start. */
  readonly leftMs: number;
  /** How long callers stay, by what they wait for. Each account counts alike. */
  readonly patience: Readonly<Record<Awaited, PatienceReport>>;
  /** Since the start: times that were reserved, refusals for which none could be, and requests that returned at their time. */
  readonly retries: { readonly reserved: number; readonly none: number; readonly kept: number };
}

export interface QueueReport extends Omit<QueueSnapshot, 'accounts'> {
  /** `tokenTimeRatio`: null where it is not known. */
  readonly replicas: readonly (Pick<ReplicaState, 'seats' | 'busy' | 'kept' | 'lent' | 'up'> & {
    readonly tokenTimeRatio: number | null;
  })[];
  /** Jain's index of weighted seat time in the last minute, over accounts that always had a request to seat; null: fewer than two. */
  readonly fairness: number | null;
  readonly overload: OverloadReport;
  readonly sessions: SessionCounts;
  readonly lent: LentCounts;
  /** The virtual time of the account that is served next; null: none has a request to seat. */
  readonly nextVirtualMs: number | null;
  /** Those with the most seat time, most first. */
  readonly accounts: readonly AccountReport[];
  /** All others that are remembered, together. */
  readonly others: Readonly<Record<'accounts' | 'waiting' | 'running' | 'seatMs', number>>;
}

/** What a report reads of the judge, which the types of the console's page do not get to: it imports the clock. */
interface Judge {
  readonly refused: QueueSnapshot['refused'];
  readonly reservations: Pick<RetryReservations, 'counts'>;
  predict(account: Account, accountClass: AccountClass): number;
}

/** The state that decisions use. */
export function snapshotOf(state: QueueState, judge: Judge): QueueSnapshot {
  return {
    seats: state.seats,
    busy: state.busy,
    kept: state.replicas.kept,
    waiting: state.waiting,
    waitingBy: { ...state.waitingBy },
    waitingBytes: state.bytes,
    paused: state.replicas.paused,
    accounts: state.columns.active.map((slot) => {
      const { name, waiting, running } = state.columns.accountAt(slot);
      return { account: name, waiting, running };
    }),
    refused: judge.refused,
    released: { ...state.released },
  };
}

/** The queue in full, with the `most` accounts that held seats longest by name. O(accounts x log accounts). */
export function reportOf(
  state: QueueState,
  judge: Judge,
  overload: Overload,
  parts: Pick<QueueReport, 'sessions' | 'lent'>,
  most: number,
): QueueReport {
  const all = [...state.accounts()].sort((a, b) => b.seatMs - a.seatMs || b.waiting - a.waiting);
  const others = { accounts: 0, waiting: 0, running: 0, seatMs: 0 };
  for (const { waiting, running, seatMs } of all.slice(most)) {
    others.accounts += 1;
    others.waiting += waiting;
    others.running += running;
    others.seatMs += seatMs;
  }
  return {
    ...snapshotOf(state, judge),
    replicas: state.replicas.all.map(({ seats, busy, kept, lent, up, tokenTimeRatio = null }) => {
      return { seats, busy, kept, lent, up, tokenTimeRatio };
    }),
    fairness: state.fairness ?? null,
    overload: {
      // Without a waiting request there is no overload, however long the running ones hold all seats.
      standing: overload.stands && state.waiting > 0,
      load: overload.load,
      leftMs: overload.leftMs,
      patience: { 'first-token': overload.patienceReport('first-token'), end: overload.patienceReport('end') },
      retries: judge.reservations.counts,
    },
    ...parts,
    nextVirtualMs: state.seatable.first?.virtualMs ?? null,
    accounts: all.slice(0, most).map((account) => accountReport(account, judge)),
    others,
  };
}

function accountReport(account: Account, judge: Judge): AccountReport {
  const { name, weight, waiting, running, kept, virtualMs, seatMs, holdMs = null } = account;
  const { calibration, predictedWaitMs } = classReport(account, account.classFor(weight), judge);
  const classes = account.classes.map((known) => classReport(account, known, judge));
  const held = { waiting, running, kept, virtualMs, seatMs, holdMs };
  return { account: name, weight, ...held, calibration, predictedWaitMs, classes };
}

function classReport(account: Account, accountClass: AccountClass, judge: Judge): ClassReport {
  const { class: name, waiting, running, kept, hold, calibration } = accountClass;
  const predictedWaitMs = judge.predict(account, accountClass);
  return { class: name, waiting, running, kept, holdMs: hold.meanMs ?? null, calibration, predictedWaitMs };
}
