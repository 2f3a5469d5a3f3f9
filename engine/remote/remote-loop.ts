/**
 * The jobs of one server: a request for each of their items, as many at once as the server is given. It is the counterpart
 * of the step loop: the same messages, with HTTP in place of decodes.
 *
 *     waiting --a seat and tokens--> in flight --the server's end--> over
 *                                        |
 *                                        '-- closed by us --> leaving --confirmed--> over
 *
 * This loop's own count decides: in flight and leaving together never exceed the limit, so that the server's own queue stays
 * empty. What the server reports only lowers the limit.
 */
import { randomUUID } from 'node:crypto';
import type { GenerateJob, Output, ReplyLimit, ScoreJob } from '../protocol/jobs.js';
import type { HeldTokens } from '../protocol/messages.js';
import {
  Flights,
  RemoteJob,
  type Flight,
  type FlightEvents,
  type FlightLimits,
  type RemoteWork,
  type Sent,
} from './flights.js';
import { LoadWatch } from './load-watch.js';
import { type ReplyFlightParts, ReplyFlight } from './reply-flight.js';
import { Outbox, type Emit } from '../scheduler/outbox.js';
import { promptLength } from '../protocol/prompt.js';
import type { Adapter } from './adapter.js';
import { distribution } from '../scheduler/scoring.js';
import type { Clock } from '../protocol/clock.js';

interface ReportOptions {
  /** The configured values, which the sidecar has already. */
  readonly seats: number;
  readonly emit: Emit;
  /** Seats and requests given up so far, when either changes. */
  readonly capacity: (seats: number, unconfirmed: number) => void;
}

export interface RemoteLoopOptions extends ReportOptions, FlightLimits {
  /** Tokens that may be in flight. */
  readonly tokens: number;
  /** Asks whether the server is still the same. Once it is not, the process ends. */
  readonly suspect: () => Promise<void>;
}

export class RemoteLoop {
  readonly #parts: ReplyFlightParts;
  readonly #options: RemoteLoopOptions;
  readonly #limit: SeatLimit;
  readonly #watch: LoadWatch;
  readonly #reports: Reports;
  /** Those that have not ended, in the order of their arrival: at most as many as the sidecar has leases. */
  readonly #jobs = new Map<number, RemoteJob>();
  readonly #flights: Flights;
  #steps = 0;

  constructor(parts: ReplyFlightParts, options: RemoteLoopOptions) {
    const { clock, adapter } = parts;
    this.#parts = parts;
    this.#options = options;
    this.#limit = new SeatLimit(clock, options.seats);
    this.#flights = new Flights(clock, options);
    this.#reports = new Reports(options, clock, () => this.#steps);
    this.#watch = new LoadWatch(clock, adapter, {
      counts: () => this.#flights.counts,
      running: (count, wanted, at) => this.#gone(this.#flights.confirm(count, wanted, at)),
      rested: (before) => {
        if (adapter.countLags) this.#gone(this.#flights.rested(before));
      },
      looked: () => this.#looked(),
      short: () => this.#limit.short(),
      ample: () => this.#limit.ample(),
      moved: () => (this.#steps += 1),
      suspect: options.suspect,
    });
  }

  /** Counts the tokens that came from the server. */
  get steps(): number {
    return this.#steps;
  }

  get live(): number {
    return this.#flights.live;
  }

  /** The most that running requests may need; the server decides what it keeps. */
  get held(): HeldTokens {
    return { running: this.#flights.tokens, kept: 0 };
  }

  generate(id: number, job: GenerateJob): void {
    this.#add(new RemoteJob(id, replies(id, job, this.#parts)));
  }

  score(id: number, job: ScoreJob): void {
    this.#add(new RemoteJob(id, questions(id, job, this.#parts.adapter)));
  }

  /** Closes its connections. `cancelled` follows once the server computes nothing of it. */
  cancel(id: number): void {
    const job = this.#jobs.get(id);
    if (!job) return;
    // The sidecar takes its seats back with `cancelled`.
    this.#jobs.delete(id);
    job.cancelled = true;
    this.#closeAll(job);
    if (job.leaving === 0) this.#reports.push([{ id, kind: 'cancelled' }]);
    this.#pump();
  }

  /** Sets how many tokens each reply of a job may have. */
  limit(id: number, limit: ReplyLimit): void {
    const job = this.#jobs.get(id);
    job?.work.limit?.(limit);
    for (const flight of [...(job?.flights ?? [])]) flight.limit?.(limit);
  }

  reduceSeats(id: number): void {
    this.#jobs.get(id)?.reduceSeats();
    this.#pump();
  }

  close(): void {
    this.#watch.stop();
    this.#flights.close();
  }

  #add(job: RemoteJob): void {
    this.#jobs.set(job.id, job);
    this.#pump();
  }

  /** Sends what there is room for, in the order of arrival: a long request is not passed by shorter ones. */
  #pump(): void {
    let blocked = false;
    for (const job of this.#jobs.values()) {
      for (let item = job.next; item !== undefined && !blocked; item = job.next) {
        if (this.live >= this.#limit.value) break;
        const tokens = job.work.tokens(item);
        const { tokens: sent, leavingTokens: leaving } = this.#flights;
        blocked = this.live > 0 && sent + leaving + tokens > this.#options.tokens;
        if (!blocked) this.#launch(job, job.take(), tokens);
      }
      if (blocked) break;
    }
    this.#reportSeats(blocked);
    this.#watch.schedule();
  }

  #launch(job: RemoteJob, item: number, tokens: number): void {
    const land = (): void => {
      job.flights.delete(flight);
      this.#flights.land(flight);
    };
    const flight: Flight = job.work.begin(item, `ra-${randomUUID()}`, {
      begun: (cached) => this.#begun(job, cached),
      outputs: (outputs) => this.#reports.push(outputs),
      cached: (count) => {
        if (item === 0) this.#reports.push([{ id: job.id, kind: 'cached', tokens: count }]);
      },
      moved: (what) => {
        this.#steps += 1;
        this.#flights.moved(flight, what);
      },
      done: () => {
        land();
        this.#itemEnded(job);
      },
      complete: () => {
        this.#leave(job, flight);
        this.#itemEnded(job);
      },
      busy: () => {
        land();
        this.#limit.short();
        this.#refused(job, item);
      },
      broken: () => {
        land();
        const { begun } = flight;
        void this.#options.suspect().then(() => {
          if (begun) this.#fail(job, 'the connection ended before the reply');
          else this.#refused(job, item);
        });
      },
      failed: (why) => {
        land();
        this.#fail(job, why);
      },
    });
    job.flights.add(flight);
    this.#flights.add(flight, job, tokens);
  }

  #begun(job: RemoteJob, cached = 0): void {
    job.cached += cached;
    if (job.started) return;
    job.started = true;
    this.#reports.push([{ id: job.id, kind: 'started', cachedTokens: cached }]);
  }

  #itemEnded(job: RemoteJob): void {
    job.end();
    if (job.done) this.#end(job, ...job.lastOutputs());
    else this.#freeSpare(job);
    this.#pump();
  }

  /**
   * The server did not take an item. A job of which nothing has begun goes back to the queue; another one tries again at the
   * next reading of the server's metrics.
   */
  #refused(job: RemoteJob, item: number): void {
    if (!this.#jobs.has(job.id)) return;
    if (!job.started && job.flights.size === 0) {
      this.#end(job, { id: job.id, kind: 'returned' });
      this.#pump();
    } else if (!job.retry(item)) this.#fail(job, 'the server takes no further reply');
  }

  #fail(job: RemoteJob, reason: string): void {
    if (!this.#end(job, { id: job.id, kind: 'failed', reason })) return;
    this.#closeAll(job);
    this.#pump();
  }

  /** Ends it with these outputs, with the last of which the sidecar takes its seats back. False: it had ended before. */
  #end(job: RemoteJob, ...outputs: readonly Output[]): boolean {
    if (!this.#jobs.delete(job.id)) return false;
    job.leased = false;
    this.#reports.push(outputs);
    return true;
  }

  /** Frees the seats that it does not need any more, if it has not ended. */
  #freeSpare(job: RemoteJob): void {
    if (!this.#jobs.has(job.id)) return;
    for (let n = job.releaseSpare(); n > 0; n--) this.#reports.push([{ id: job.id, kind: 'seatFreed' }]);
  }

  #closeAll(job: RemoteJob): void {
    for (const flight of [...job.flights]) {
      flight.close();
      this.#leave(job, flight);
    }
  }

  #leave(job: RemoteJob, flight: Flight): void {
    job.flights.delete(flight);
    this.#flights.leave(flight);
    this.#parts.adapter.abort?.(flight.name);
    job.leaving += 1;
    this.#watch.schedule();
  }

  /** The server computes nothing more of these. */
  #gone(all: readonly Sent[]): void {
    for (const { job } of all) {
      job.leaving -= 1;
      if (job.leaving === 0 && job.cancelled) this.#reports.push([{ id: job.id, kind: 'cancelled' }]);
      this.#freeSpare(job);
    }
  }

  #looked(): void {
    for (const { job } of this.#flights.silent()) this.#fail(job, 'the server makes no progress');
    this.#gone(this.#flights.expire());
    this.#pump();
  }

  /**
   * A seat is not handed out while a request of an ended job may still take it. While tokens are short, no further one is.
   * The sidecar takes one seat as the least: its job then waits here.
   */
  #reportSeats(blocked: boolean): void {
    const { counts, unleased, unconfirmed } = this.#flights;
    let seats = this.#limit.value - unleased;
    if (blocked) {
      // Those of jobs, without those of requests that were closed.
      const taken = [...this.#jobs.values()].reduce((sum, job) => sum + job.seats - job.leaving, 0);
      seats = Math.min(seats, taken + counts.leaving - unleased);
    }
    this.#reports.capacity(Math.max(1, seats), unconfirmed);
  }
}

function replies(id: number, job: GenerateJob, parts: ReplyFlightParts): RemoteWork {
  const tokens = promptLength(job.prompt) + job.maxTokens;
  let latest: ReplyLimit | undefined;
  return {
    limit: (limit) => (latest = limit),
    items: job.n,
    seats: job.seats,
    tokens: () => tokens,
    begin: (item, name, events) => {
      const flight = new ReplyFlight(id, job, item, name, parts, events);
      if (latest) flight.limit(latest);
      return flight;
    },
  };
}

function questions(id: number, job: ScoreJob, adapter: Adapter): RemoteWork {
  return {
    countsEach: true,
    items: job.questions.length,
    seats: job.seats,
    tokens: (item) => job.input.length + (job.questions[item]?.tail.length ?? 0) + 1,
    begin: (item, name, events) => new ScoreFlight(id, job, item, name, adapter, events),
  };
}

/** One question of a decision. */
class ScoreFlight implements Flight {
  readonly name: string;
  /** Not known before its answer. */
  readonly begun = false;
  readonly #closing = new AbortController();

  constructor(id: number, job: ScoreJob, question: number, name: string, adapter: Adapter, events: FlightEvents) {
    this.name = name;
    const promptTokens = job.input.length + (job.questions[question]?.tail.length ?? 0);
    const temperature = job.temperature * (job.questions[question]?.temperature ?? 1);
    void adapter.score(job, question, this.#closing.signal).then((scores) => {
      if (this.#closing.signal.aborted) return;
      if (scores.kind === 'failed') events.failed(scores.why);
      else if (scores.kind === 'busy') events.busy();
      else if (scores.kind === 'broken') events.broken();
      else if ((scores.cached ?? 0) > promptTokens) events.failed('a wrong count of cached tokens');
      else {
        const { cached, logprobs } = scores;
        events.moved('token');
        events.begun(cached);
        events.outputs([{ id, kind: 'answer', question, ...distribution(logprobs, temperature) }]);
        events.done();
      }
    });
  }

  close(): void {
    this.#closing.abort();
  }
}

/** What the sidecar is sent. */
class Reports {
  readonly #options: ReportOptions;
  readonly #outbox: Outbox;
  readonly #steps: () => number;
  #flushing = false;
  #reported: string;

  /** `steps`: read for each message. */
  constructor(options: ReportOptions, clock: Clock, steps: () => number) {
    this.#options = options;
    this.#outbox = new Outbox(options.emit, 0, clock, () => true);
    this.#steps = steps;
    this.#reported = `${options.seats} 0`;
  }

  /** All that comes in one turn of the event loop is sent in one message. */
  push(outputs: readonly Output[]): void {
    this.#outbox.outputs.push(...outputs);
    if (this.#flushing) return;
    this.#flushing = true;
    setImmediate(() => {
      this.#flushing = false;
      this.#outbox.send(this.#steps(), []);
    });
  }

  capacity(seats: number, unconfirmed: number): void {
    const report = `${seats} ${unconfirmed}`;
    if (report === this.#reported) return;
    this.#reported = report;
    this.#options.capacity(seats, unconfirmed);
  }
}

/** The least time between two decreases, ms: one shortage shows in several answers and readings. */
const DECREASE_MS = 1000;

/** The time without a sign of shortage after which the limit rises by one, ms. */
const INCREASE_MS = 2000;

/** What the limit is multiplied with at a sign of shortage, as TCP's CUBIC does. */
const DECREASE = 0.7;

/**
 * How many requests a server is given at once: at most as many as are configured, fewer when it shows that it has too many,
 * and then slowly more again (additive increase, multiplicative decrease).
 */
export class SeatLimit {
  readonly #clock: Clock;
  readonly #most: number;
  #value: number;
  #loweredAt = -Infinity;
  #changedAt: number;

  constructor(clock: Clock, most: number) {
    this.#clock = clock;
    this.#most = this.#value = most;
    this.#changedAt = clock.now();
  }

  get value(): number {
    return this.#value;
  }

  /** The server refused a request, lets one wait, or had to put one back. */
  short(): void {
    const now = this.#clock.now();
    this.#changedAt = now;
    if (now - this.#loweredAt < DECREASE_MS) return;
    this.#loweredAt = now;
    this.#value = Math.max(1, Math.floor(this.#value * DECREASE));
  }

  /** A reading shows no shortage. Not called while readings fail: the limit then stays the same. */
  ample(): void {
    const now = this.#clock.now();
    if (this.#value >= this.#most || now - this.#changedAt < INCREASE_MS) return;
    this.#changedAt = now;
    this.#value += 1;
  }
}
