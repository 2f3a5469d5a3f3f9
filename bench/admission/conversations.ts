/**
 * Conversations that go on turn by turn, on several replicas of one engine, on a clock that jumps from event to event: how much of
 * their prompts is reused, and how long a first token takes. The replicas are stand-ins. Each has seats that keep the tokens of
 * their last request; a request takes the free seat of its past turns, else the one not used for longest. A token that is computed takes `tokenMs`, a token of a reply `stepMs`, up to `loadFactor` times that while all seats of the replica are busy.
 */
import { createFairQueue } from '../../sidecar/admission/fair-queue.js';
import type { Lease, SeatQueue } from '../../sidecar/admission/seat-queue.js';
import { seeded } from '../support/load.js';
import { Agenda } from './agenda.js';

export interface Talks {
  /** Seats of each replica. */
  readonly replicas: readonly number[];
  readonly conversations: number;
  readonly turns: number;
  /** Mean time between a reply and the next question, ms. */
  readonly thinkMs: number;
  readonly tokenMs: number;
  readonly stepMs: number;
  readonly loadFactor: number;
  /**
   * queue: one queue over all replicas; costs: the same, with placement by the costs in ms (`#costMs`); costs-and-loss: likewise, with
   * the cost of computing again what the request overwrites; round-robin: a queue for each, which get the requests in turn;
   * least-busy: likewise, each request to the one with the fewest.
   */
  readonly by: 'queue' | 'costs' | 'costs-and-loss' | 'round-robin' | 'least-busy';
  readonly seed: number;
}

export interface ConversationResult {
  /** Share of the prompts' tokens that was not computed again. */
  readonly reused: number;
  /** From a question to its first token, ms. */
  readonly ttftMs: readonly number[];
  /** When the last reply ended, ms. */
  readonly untilMs: number;
}

/** Tokens by which the queue knows prefixes. */
const CHUNK = 64;
/** A system prompt that all conversations share, a question, a reply. */
const SHARED_TOKENS = 256;
const QUESTION_TOKENS = [40, 200] as const;
const REPLY_TOKENS = [60, 260] as const;
const CONFIG = { maxWaitMs: 600_000, waitingPerSeat: 1000, waitingBytes: 1e9 };
/** Accounts that the conversations belong to. */
const ACCOUNTS = 8;

/** What a seat keeps: tokens of one conversation. */
interface Seat {
  conversation: number;
  tokens: number;
  live: boolean;
  usedAt: number;
}

class Replica {
  readonly seats: readonly Seat[];
  #used = 0;

  constructor(seats: number) {
    this.seats = Array.from({ length: seats }, () => ({ conversation: -1, tokens: 0, live: false, usedAt: 0 }));
  }

  get busyShare(): number {
    return this.seats.filter(({ live }) => live).length / this.seats.length;
  }

  /** Tokens of a conversation's prompt that it has: of its past turns, or of the beginning that all share, which is copied. */
  held(conversation: number): number {
    const own = this.seats.find((seat) => seat.conversation === conversation && !seat.live);
    if (own) return own.tokens;
    return this.seats.some(({ tokens }) => tokens > 0) ? SHARED_TOKENS : 0;
  }

  /** In whole chunks, as an engine reports it. */
  longest(conversation: number): number {
    return Math.floor(this.held(conversation) / CHUNK) * CHUNK;
  }

  /** Tokens of another conversation that a request of this one overwrites. */
  overwritten(conversation: number): number {
    const seat = this.#seatFor(conversation);
    return seat === undefined || seat.conversation === conversation ? 0 : seat.tokens;
  }

  take(conversation: number): Seat {
    const seat = this.#seatFor(conversation);
    if (!seat) throw new Error('the queue gave a seat that is not free');
    seat.live = true;
    return seat;
  }

  #seatFor(conversation: number): Seat | undefined {
    const free = this.seats.filter(({ live }) => !live);
    const own = free.find((seat) => seat.conversation === conversation);
    return own ?? free.sort((a, b) => a.usedAt - b.usedAt)[0];
  }

  leave(seat: Seat, conversation: number, tokens: number): void {
    Object.assign(seat, { conversation, tokens, live: false, usedAt: (this.#used += 1) });
  }
}

/** Deterministic. */
export async function talk(talks: Talks): Promise<ConversationResult> {
  const run = new Talk(talks);
  run.begin();
  while (run.agenda.step(Infinity)) await new Promise<void>((told) => setImmediate(told));
  return run.end();
}

class Talk {
  readonly agenda = new Agenda();
  readonly #talks: Talks;
  readonly #random: () => number;
  readonly #replicas: readonly Replica[];
  /** One, or one for each replica. */
  readonly #queues: readonly SeatQueue[];
  readonly #waiting: number[];
  readonly #ttftMs: number[] = [];
  /** Of each conversation's last question. */
  readonly #promptTokens = new Map<number, number>();
  #asked = 0;
  #prompted = 0;
  #reused = 0;
  #untilMs = 0;

  constructor(talks: Talks) {
    this.#talks = talks;
    this.#random = seeded(talks.seed);
    this.#replicas = talks.replicas.map((seats) => new Replica(seats));
    const sizes = talks.replicas.map((seats) => ({ seats, contextPerSeat: 1 << 20 }));
    const queueOf = (of: typeof sizes, at: number): SeatQueue =>
      createFairQueue({
        clock: this.agenda,
        random: seeded(talks.seed),
        config: CONFIG,
        seats: of,
        sharedTokens: (prefix, replica) => this.#sharedTokens(prefix[0] ?? 0, at + replica),
        learns: false,
      });
    this.#queues = this.#isOneQueue() ? [queueOf(sizes, 0)] : sizes.map((size, at) => queueOf([size], at));
    this.#waiting = this.#queues.map(() => 0);
  }

  begin(): void {
    for (let id = 0; id < this.#talks.conversations; id += 1) {
      this.agenda.after(this.#random() * this.#talks.thinkMs, () => this.#ask(id, 1, SHARED_TOKENS));
    }
  }

  end(): ConversationResult {
    return { reused: this.#reused / this.#prompted, ttftMs: this.#ttftMs, untilMs: this.#untilMs };
  }

  #ask(conversation: number, turn: number, history: number): void {
    const askedAt = this.agenda.now();
    const promptTokens = history + this.#between(QUESTION_TOKENS);
    const replyTokens = this.#between(REPLY_TOKENS);
    const at = this.#choose();
    const queue = this.#queues[at];
    const account = `account ${conversation % ACCOUNTS}`;
    const ticket = queue?.enter({ account, weight: 4, bytes: 1, seatsWanted: 1, awaits: 'first-token' });
    if (!ticket || 'kind' in ticket) throw new Error('refused');
    this.#waiting[at] = (this.#waiting[at] ?? 0) + 1;
    this.#promptTokens.set(conversation, promptTokens);
    void ticket.outcome.then((outcome) => {
      if (outcome.kind !== 'seated') throw new Error(outcome.kind);
      this.#serve(outcome.lease, { conversation, turn, promptTokens, replyTokens, askedAt, at });
    });
    ticket.ready({ promptTokens, maxTokens: replyTokens, prefix: Uint32Array.of(conversation) });
  }

  #serve(
    lease: Lease,
    asked: {
      readonly conversation: number;
      readonly turn: number;
      readonly promptTokens: number;
      readonly replyTokens: number;
      readonly askedAt: number;
      readonly at: number;
    },
  ): void {
    const { conversation, turn, promptTokens, replyTokens, askedAt, at } = asked;
    const { tokenMs, stepMs, loadFactor, thinkMs, turns } = this.#talks;
    const replica = this.#replicas[at + lease.replica];
    if (!replica) throw new Error('no such replica');
    const kept = Math.min(replica.held(conversation), promptTokens - 1);
    const seat = replica.take(conversation);
    this.#prompted += promptTokens;
    this.#reused += kept;
    this.agenda.after((promptTokens - kept) * tokenMs + stepMs, () => {
      lease.begun();
      this.#ttftMs.push(this.agenda.now() - askedAt);
      const slower = 1 + (loadFactor - 1) * replica.busyShare;
      this.agenda.after(replyTokens * stepMs * slower, () => {
        replica.leave(seat, conversation, promptTokens + replyTokens);
        this.#waiting[at] = (this.#waiting[at] ?? 0) - 1;
        lease.release('done');
        this.#untilMs = this.agenda.now();
        if (turn === turns) return;
        const pause = -Math.log(1 - this.#random()) * thinkMs;
        this.agenda.after(pause, () => this.#ask(conversation, turn + 1, promptTokens + replyTokens));
      });
    });
  }

  #isOneQueue(): boolean {
    return this.#talks.by === 'queue' || this.#talks.by === 'costs' || this.#talks.by === 'costs-and-loss';
  }

  /**
   * The tokens of the prompt that this replica reports to the queue. To place by costs, the bench reports minus one whole prompt for each
   * ms that the request costs there: the queue takes the replica with the largest share, less shares of at most 1, so the costs decide.
   */
  #sharedTokens(conversation: number, at: number): number {
    const replica = this.#replicas[at];
    if (replica === undefined) return 0;
    if (this.#talks.by === 'queue' || !this.#isOneQueue()) return replica.longest(conversation);
    const promptTokens = this.#promptTokens.get(conversation) ?? 0;
    return -promptTokens * this.#costMs(replica, conversation, promptTokens);
  }

  /** What a request costs on a replica by the stand-ins' true times, which a queue could only learn, ms. */
  #costMs(replica: Replica, conversation: number, promptTokens: number): number {
    const { tokenMs, stepMs, loadFactor, by } = this.#talks;
    const computed = promptTokens - replica.longest(conversation);
    const lost = by === 'costs-and-loss' ? replica.overwritten(conversation) : 0;
    const replyTokens = (REPLY_TOKENS[0] + REPLY_TOKENS[1]) / 2;
    return (computed + lost) * tokenMs + replyTokens * stepMs * (loadFactor - 1) * replica.busyShare;
  }

  #choose(): number {
    if (this.#isOneQueue()) return 0;
    if (this.#talks.by === 'round-robin') return this.#asked++ % this.#queues.length;
    return this.#waiting.indexOf(Math.min(...this.#waiting));
  }

  #between([least, most]: readonly [number, number]): number {
    return Math.round(least + this.#random() * (most - least));
  }
}
