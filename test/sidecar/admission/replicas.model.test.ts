import fc from 'fast-check';
import t from 'tap';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { Lease, Ticket } from '../../../sidecar/admission/types.js';
import { FakeClock } from '../../support/fake-clock.js';
import { rounds } from '../../support/long-form.js';

const CONTEXTS = [1000, 1000, 4000] as const;
const EVENTS = 300;
const WALKS = rounds({ short: 60, long: 600 });

interface Waiting {
  readonly ticket: Ticket;
  readonly tokens: number;
}

/** A queue of three unequal replicas under random events, with a model of its seats. */
class ReplicaWalk {
  readonly #clock = new FakeClock();
  readonly #queue: SeatQueue;
  readonly #waiting = new Set<Waiting>();
  readonly #running = new Set<{ readonly lease: Lease; readonly tokens: number }>();
  readonly #up = CONTEXTS.map(() => true);

  constructor(seats: readonly number[]) {
    const config = { maxWaitMs: 1e6, waitingPerSeat: 8, waitingBytes: 1e9 };
    this.#queue = new SeatQueue({
      clock: this.#clock,
      random: () => 0,
      config,
      learns: false,
      seats: CONTEXTS.map((contextPerSeat, at) => ({ seats: seats[at] ?? 1, contextPerSeat })),
      reusableTokens: (prefix, replica) => (prefix[0] === replica ? 640 : 0),
    });
  }

  event(value: number): void {
    const [kind, pick] = [value % 8, Math.floor(value / 8)];
    if (kind < 3) this.#enter(pick);
    else if (kind < 5) this.#end(pick, 'release');
    else if (kind === 5) this.#toggle(pick % CONTEXTS.length);
    else if (kind === 6) this.#clock.advance(pick % 50);
    else this.#nth(this.#waiting, pick)?.ticket.cancel();
  }

  /** Lets the outcomes settle, then compares the queue with the model. Returns the problems. */
  async check(): Promise<string | undefined> {
    for (let turn = 0; turn < 6; turn += 1) await Promise.resolve();
    const { all } = this.#queue.load.replicas;
    const held = all.map((_, at) => [...this.#running].filter(({ lease }) => lease.replica === at));
    const sums = held.map((of) => of.reduce((sum, { lease }) => sum + lease.seats(), 0));
    if (sums.some((sum, at) => sum !== all[at]?.busy)) return `${sums.join()} seats are held, ${JSON.stringify(all)}`;
    if (all.some(({ seats, busy }) => busy > seats)) return 'more are held than exist';
    const short = [...this.#running].find(({ lease, tokens }) => (CONTEXTS[lease.replica] ?? 0) < tokens);
    if (short) return 'a seat is too short for its request';
    const free = all.map(({ up, seats, busy }) => (up ? seats - busy : 0));
    const stuck = [...this.#waiting].find(({ tokens }) => free.some((n, at) => n > 0 && (CONTEXTS[at] ?? 0) >= tokens));
    return stuck && `a request of ${stuck.tokens} tokens waits beside free seats ${free.join()}`;
  }

  async finish(): Promise<string | undefined> {
    CONTEXTS.forEach((_, at) => this.#up[at] || this.#toggle(at));
    for (let left = 10_000; this.#running.size + this.#waiting.size > 0 && left > 0; left -= 1) {
      this.#end(0, 'release');
      const wrong = await this.check();
      if (wrong !== undefined) return wrong;
    }
    return this.#running.size + this.#waiting.size > 0 ? 'some were never seated' : undefined;
  }

  #enter(pick: number): void {
    const tokens = pick % 5 === 0 ? 3000 : 500;
    const account = ['a', 'b', 'c'][pick % 3] ?? 'a';
    const entered = this.#queue.enter({ account, weight: 4, bytes: 1, seatsWanted: 1 + (pick % 2) });
    if ('kind' in entered) return;
    this.#await({ ticket: entered, tokens }, entered.outcome);
    entered.ready({ promptTokens: 800, seatTokens: tokens, prefix: Uint32Array.of(pick % 4) });
  }

  #await(waiting: Waiting, outcome: Ticket['outcome']): void {
    this.#waiting.add(waiting);
    void outcome.then((settled) => {
      this.#waiting.delete(waiting);
      if (settled.kind !== 'seated') return;
      settled.lease.takeSeat();
      const running = { lease: settled.lease, tokens: waiting.tokens, waiting };
      // A lost replica reports its jobs after its seats.
      if (this.#up[settled.lease.replica] === true) this.#running.add(running);
      else this.#await(waiting, settled.lease.giveBack());
    });
  }

  #end(pick: number, how: 'release' | 'giveBack'): void {
    const running = this.#nth(this.#running, pick);
    if (running === undefined) return;
    this.#running.delete(running);
    if (how === 'release') running.lease.release('done');
    else this.#await({ ticket: NO_TICKET, tokens: running.tokens }, running.lease.giveBack());
  }

  /** A replica is lost, with all that it runs, or added. */
  #toggle(at: number): void {
    const up = (this.#up[at] = this.#up[at] !== true);
    if (up) {
      this.#queue.resume(this.#queue.load.replicas.all[at]?.seats ?? 1, at);
      return;
    }
    this.#queue.pause(at);
    for (const running of [...this.#running]) {
      if (running.lease.replica !== at) continue;
      this.#running.delete(running);
      this.#await({ ticket: NO_TICKET, tokens: running.tokens }, running.lease.giveBack());
    }
  }

  #nth<T>(from: ReadonlySet<T>, pick: number): T | undefined {
    return [...from][pick % Math.max(1, from.size)];
  }
}

/** Of a request that was given back: its first ticket is no longer needed. */
const NO_TICKET: Ticket = {
  place: () => undefined,
  ready: () => undefined,
  cancel: () => undefined,
  outcome: new Promise(() => undefined),
};

t.test(
  'whatever happens, no seat is lost, too short, or free beside a request that could use it',
  { timeout: 120_000 },
  async () => {
    const seats = fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 3, maxLength: 3 });
    const walk = fc.array(fc.nat({ max: 2 ** 30 }), { minLength: EVENTS, maxLength: EVENTS });
    await fc.assert(
      fc.asyncProperty(seats, walk, async (sizes, values) => {
        const queue = new ReplicaWalk(sizes);
        for (const value of values) {
          queue.event(value);
          const wrong = await queue.check();
          if (wrong !== undefined) throw new Error(wrong);
        }
        const wrong = await queue.finish();
        if (wrong !== undefined) throw new Error(wrong);
      }),
      { numRuns: WALKS },
    );
  },
);
