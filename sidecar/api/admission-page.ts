/** A file of its own: the console page's scripts are checked against it, and then against all that it imports. */
import type { QueueReport } from '../admission/report.js';

/** One model's queue as operators see it. Times in ms, rounded. */
export interface AdmissionPage {
  readonly seats: number;
  readonly busy: number;
  /** Seats that are kept for sessions between two turns. */
  readonly kept: number;
  readonly waiting: number;
  readonly waitingBytes: number;
  readonly paused: boolean;
  /**
   * The seats of each engine process, in the order of the configuration. `tokenTimeRatio`: how many times as long a token of a
   * reply takes on it as on the average one under the same load; null: not known.
   */
  readonly replicas: QueueReport['replicas'];
  readonly fairness: number | null;
  readonly refused: QueueReport['refused'];
  readonly released: QueueReport['released'];
  readonly overload: QueueReport['overload'];
  readonly sessions: QueueReport['sessions'];
  readonly lent: QueueReport['lent'];
  /** The `virtualMs` of the account that is served next; null: none has a request to seat. */
  readonly nextVirtualMs: QueueReport['nextVirtualMs'];
  readonly accounts: QueueReport['accounts'];
  /** The sums of all other accounts. */
  readonly others: QueueReport['others'];
}
