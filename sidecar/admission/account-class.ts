import { CLASS_WEIGHTS, type ServiceClass } from '../domain/service-class.js';
import { Demand } from './demand.js';
import { HoldTime } from './hold-time.js';
import { OrderedList } from './ordered-list.js';
import { ServiceRate } from './service-rate.js';
import type { QueuedRequest } from './queued-request.js';
import { UserRoundRobin } from './user-round-robin.js';

/** How far predictions may be corrected. */
const MIN_CALIBRATION = 0.5;
const MAX_CALIBRATION = 4;

/** After a wait that was too long, predictions are multiplied by 1 + this. */
const STEP = 0.08;

/** The share of admitted requests that may wait too long, where steps up and down cancel out; the bound to be kept is 0.03. */
const TIMEOUT_SHARE = 0.02;

/** After a wait that ended with a seat, predictions are multiplied by this. */
const DOWN = 1 - STEP * TIMEOUT_SHARE;

/** What the queue knows of one account's requests of one service class. Plain state: QueueState and FairQueue change it. */
export class AccountClass {
  readonly class: ServiceClass;
  readonly weight: number;
  /**
   * Seat-milliseconds of the account's requests of this class and of all lighter ones, over this class's weight. It is
   * charged as they pass, and lifted when the class begins to wait. Read it through its account, which keeps an only one.
   */
  virtualMs = 0;
  /** Seats held. */
  running = 0;
  /** All that wait, seatable or not, in the order of entering, except those whose engine was lost. */
  readonly list = new OrderedList<QueuedRequest>();
  /** Those who may be seated, in the order of their turns. */
  readonly users = new UserRoundRobin();
  /** Waiting requests whose engine was lost. */
  returned = 0;
  /** Body bytes of those in `list`. */
  bytes = 0;
  /** Seat-milliseconds that one request takes. */
  readonly hold = new HoldTime();
  /** Milliseconds from its first seat to its end, however many it holds in between. */
  readonly wall = new HoldTime();
  /** How fast it is given seats while it waits. */
  readonly serviceRate = new ServiceRate();
  readonly demand = new Demand();
  /** The same of the time of about one request. */
  readonly recentDemand = new Demand();
  /** The next is the newest, not the one that waited longest (overload.ts). */
  newestFirst = false;
  /** The last period of a standing queue at whose begin the requests beyond its room were refused (overload.ts). */
  trimmedIn = 0;
  /** The last time to come back at that was reserved for one of these requests (retry-reservations.ts). */
  reservedAt = 0;
  #calibration = 1;

  constructor(name: ServiceClass) {
    this.class = name;
    this.weight = CLASS_WEIGHTS[name];
  }

  get waiting(): number {
    return this.list.length + this.returned;
  }

  /** Whether one of these requests may be seated once a seat is free. */
  get hasSeatable(): boolean {
    return this.users.head !== undefined || this.returned > 0;
  }

  /** Requests that come for each that is seated. */
  get load(): number {
    return this.demand.load(this.waiting);
  }

  /** What predictions are multiplied by. */
  get calibration(): number {
    return this.#calibration;
  }

  /** The request that its next turn goes to; undefined: none of it may be seated. */
  get next(): QueuedRequest | undefined {
    return this.users.next(this.newestFirst);
  }

  /** One of its requests waited too long. */
  waitedTooLong(): void {
    this.#calibration = Math.min(MAX_CALIBRATION, this.#calibration * (1 + STEP));
  }

  /** One of its requests waited and got its seat. */
  waitedAndSeated(): void {
    this.#calibration = Math.max(MIN_CALIBRATION, this.#calibration * DOWN);
  }

  /** One was refused for the correction alone while none waits whose outcome would correct it. */
  refusedByCalibration(): void {
    this.#calibration = Math.max(1, this.#calibration * DOWN);
  }
}
