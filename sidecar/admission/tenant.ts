import { HeapNode } from '../heap.js';
import { HoldTime } from './hold-time.js';
import { Line } from './line.js';
import { Pace } from './pace.js';
import type { Place } from './place.js';
import { Turns } from './turns.js';

/** How far a tenant's predictions may be corrected. */
const MIN_CALIBRATION = 0.5;
const MAX_CALIBRATION = 4;

/** After one that waited in vain predictions are this much longer. */
const STEP = 0.08;

/** The share of admitted requests that may wait in vain, where steps up and down cancel out: below the 0.03 to be kept. */
const TIMEOUT_SHARE = 0.02;

/** After one that did not they are this much shorter. */
const DOWN = 1 - STEP * TIMEOUT_SHARE;

/** What the queue knows of one tenant. Plain state: the ledger and the queue keep it. */
export class Tenant {
  readonly name: string;
  /** Seat-milliseconds over weight, charged as they pass, lifted when it comes back from being idle. */
  virtualMs = 0;
  /** How fast that grows now: the sum of 1/weight over the seats that it holds. */
  rate = 0;
  /** Of its newest request. */
  weight = 1;
  /** Seats held. */
  running = 0;
  /** Requests that hold them. */
  leases = 0;
  /** Seat-milliseconds in all, without weights. */
  seatMs = 0;
  /** Seat-milliseconds over weight since the fairness window began. */
  windowMs = 0;
  /** Clock reading since which it has had somebody to seat without a break; undefined: it has nobody. */
  backloggedSince: number | undefined;
  /** All who wait, seatable or not, in the order of entering; the returned stand elsewhere. */
  readonly line = new Line<Place>();
  /** Those who may be seated, in the order of their turns. */
  readonly turns = new Turns();
  /** Waiting requests whose engine was lost. */
  returned = 0;
  /** Body bytes of those in `line`. */
  bytes = 0;
  /** Seat-milliseconds that one request takes. */
  readonly hold = new HoldTime();
  /** Milliseconds from its first seat to its end, however many it holds in between. */
  readonly wall = new HoldTime();
  /** How fast it is given seats while it waits. */
  readonly pace = new Pace();
  /** Among those who wait or run. */
  readonly active: HeapNode<Tenant> = new HeapNode<Tenant>(this);
  /** Among those who have somebody to seat. */
  readonly seatable: HeapNode<Tenant> = new HeapNode<Tenant>(this);
  /** Among those who do neither, and since when in their order. */
  readonly idle: HeapNode<Tenant> = new HeapNode<Tenant>(this);
  idleOrder = 0;
  /** Among those who hold seats. */
  readonly holding: HeapNode<Tenant> = new HeapNode<Tenant>(this);
  #calibration = 1;

  constructor(name: string) {
    this.name = name;
  }

  get waiting(): number {
    return this.line.length + this.returned;
  }

  /** Whether somebody of it would be given a seat now. */
  get inLine(): boolean {
    return this.turns.head !== undefined || this.returned > 0;
  }

  /** What predictions are multiplied by. */
  get calibration(): number {
    return this.#calibration;
  }

  /** One of its requests waited in vain. */
  waitedInVain(): void {
    this.#calibration = Math.min(MAX_CALIBRATION, this.#calibration * (1 + STEP));
  }

  /** One of its requests waited and got its seat. */
  waitedWell(): void {
    this.#calibration = Math.max(MIN_CALIBRATION, this.#calibration * DOWN);
  }

  /** One was refused for the correction alone while none is in line to teach a better one. */
  refusedByCalibration(): void {
    this.#calibration = Math.max(1, this.#calibration * DOWN);
  }
}
