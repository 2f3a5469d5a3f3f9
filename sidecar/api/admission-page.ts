import type { ClassReport, QueueReport } from '../admission/seat-queue.js';

/** One model's queue as operators see it. Times in ms. */
export interface AdmissionPage {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  readonly waitingBytes: number;
  readonly paused: boolean;
  /** The seats of each engine process, in the order of the configuration. */
  readonly replicas: QueueReport['replicas'];
  readonly fairness: number | null;
  readonly refused: QueueReport['refused'];
  readonly released: QueueReport['released'];
  readonly overload: QueueReport['overload'];
  readonly accounts: readonly AccountLine[];
  /** The sums of all other accounts. */
  readonly others: {
    readonly accounts: number;
    readonly waiting: number;
    readonly running: number;
    readonly seatMs: number;
  };
}

/** One account: the fields of AccountReport, rounded. */
export interface AccountLine {
  readonly account: string;
  readonly weight: number;
  readonly waiting: number;
  readonly running: number;
  readonly virtualMs: number;
  readonly seatMs: number;
  readonly holdMs: number | null;
  readonly calibration: number;
  readonly predictedWaitMs: number;
  readonly classes: readonly ClassReport[];
}
