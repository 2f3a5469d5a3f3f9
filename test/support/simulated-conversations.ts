/**
 * Conversations that go on turn by turn, on several replicas of one engine, on a clock that jumps from event to event: how much of
 * their prompts is reused, and how long replies take. The replicas are stand-ins. Each has seats that keep the tokens of
 * their last request; a request takes the free seat of its past turns, else the one not used for longest. A token that is computed takes `tokenMs`, a token of a reply `stepMs`, up to `loadFactor` times that while all seats of the replica are busy.
 */
import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { Lease } from '../../sidecar/admission/types.js';
import { seeded } from '../../bench/support/load.js';
import { Agenda } from '../../bench/admission/agenda.js';

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
  /** How many times as long everything takes on each replica; absent: they are equally fast. */
  readonly slower?: readonly number[];
  /** Whether the queue observes how long tokens take; absent: it does. */
  readonly observed?: boolean;
  /** queue: one queue over all replicas; round-robin: a queue for each, which get the requests in turn. */
  readonly by: 'queue' | 'round-robin';
  readonly seed: number;
}

interface ConversationResult {
  /** Share of the prompts' tokens that was not computed again. */
  readonly reused: number;
  /** From a question to the end of its reply, ms. */
  readonly replyMs: readonly number[];
}

/** Tokens by which the queue knows prefixes. */
const CHUNK = 64;
/** Tokens of a system prompt that all conversations share. */
const SHARED_TOKENS = 256;
/** Tokens of a reply for each of which the queue observes their mean time, at its end. */
const WINDOW = 32;
/** A question, a reply. */
const QUESTION_TOKENS = [40, 200] as const;
const REPLY_TOKENS = [60, 260] as const;
const CONFIG = { maxWaitMs: 600_000, waitingPerSeat: 1000, waitingBytes: 1e9 };
/** Accounts that the conversations belong to. */
const ACCOUNTS = 8;

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
  readonly #replicas: readonly StandInReplica[];
  /** One, or one for each replica. */
  readonly #queues: readonly SeatQueue[];
  readonly #replyMs: number[] = [];
  #asked = 0;
  #prompted = 0;
  #reused = 0;

  constructor(talks: Talks) {
    this.#talks = talks;
    this.#random = seeded(talks.seed);
    this.#replicas = talks.replicas.map((seats) => new StandInReplica(seats));
    const sizes = talks.replicas.map((seats) => ({ seats, contextPerSeat: 1 << 20 }));
    const queueOf = (of: typeof sizes, at: number): SeatQueue =>
      new SeatQueue({
        clock: this.agenda,
        random: seeded(talks.seed),
        config: CONFIG,
        seats: of,
        reusableTokens: (prefix, replica) => this.#replicas[at + replica]?.longest(prefix[0] ?? 0) ?? 0,
        learns: false,
      });
    this.#queues = talks.by === 'queue' ? [queueOf(sizes, 0)] : sizes.map((size, at) => queueOf([size], at));
  }

  begin(): void {
    for (let id = 0; id < this.#talks.conversations; id += 1) {
      this.agenda.after(this.#random() * this.#talks.thinkMs, () => this.#ask(id, 1, SHARED_TOKENS));
    }
  }

  end(): ConversationResult {
    return { reused: this.#reused / this.#prompted, replyMs: this.#replyMs };
  }

  #ask(conversation: number, turn: number, history: number): void {
    const askedAt = this.agenda.now();
    const promptTokens = history + this.#between(QUESTION_TOKENS);
    const replyTokens = this.#between(REPLY_TOKENS);
    const at = this.#asked++ % this.#queues.length;
    const queue = this.#queues[at];
    const account = `account ${conversation % ACCOUNTS}`;
    const ticket = queue?.enter({ account, weight: 4, bytes: 1, seatsWanted: 1, awaits: 'first-token' });
    if (!ticket || 'kind' in ticket) throw new Error('refused');
    void ticket.outcome.then((outcome) => {
      if (outcome.kind !== 'seated') throw new Error(outcome.kind);
      this.#serve(outcome.lease, { conversation, turn, promptTokens, replyTokens, askedAt, at });
    });
    ticket.ready({ promptTokens, prefix: Uint32Array.of(conversation) });
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
    const { tokenMs, stepMs, loadFactor, thinkMs, turns, slower = [], observed = true } = this.#talks;
    const replica = this.#replicas[at + lease.replica];
    if (!replica) throw new Error('no such replica');
    const kept = Math.min(replica.held(conversation), promptTokens - 1);
    const seat = replica.take(conversation);
    this.#prompted += promptTokens;
    this.#reused += kept;
    const times = slower[at + lease.replica] ?? 1;
    this.agenda.after(((promptTokens - kept) * tokenMs + stepMs) * times, () => {
      lease.begun();
      const replyTokenMs = stepMs * times * (1 + (loadFactor - 1) * replica.busyShare);
      this.agenda.after(replyTokens * replyTokenMs, () => {
        replica.leave(seat, conversation, promptTokens + replyTokens);
        for (let seen = WINDOW; observed && seen <= replyTokens; seen += WINDOW) lease.observeTokenMs(replyTokenMs);
        lease.release('done');
        this.#replyMs.push(this.agenda.now() - askedAt);
        if (turn === turns) return;
        const pause = -Math.log(1 - this.#random()) * thinkMs;
        this.agenda.after(pause, () => this.#ask(conversation, turn + 1, promptTokens + replyTokens));
      });
    });
  }

  #between([least, most]: readonly [number, number]): number {
    return Math.round(least + this.#random() * (most - least));
  }
}

/** What a seat keeps: tokens of one conversation. */
interface Seat {
  conversation: number;
  tokens: number;
  live: boolean;
  usedAt: number;
}

/** A replica without an engine: what its seats keep of conversations. */
class StandInReplica {
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
