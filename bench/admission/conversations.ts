/**
 * Conversations that go on turn by turn, on several replicas of one engine, on a clock that jumps from event to event: how much of
 * their prompts is reused, and how long a first token takes. The replicas are stand-ins. Each has seats that keep the tokens of
 * their last request; a request takes the free seat of its past turns, else the one not used for longest. A token that is computed takes `tokenMs`, a token of a reply `stepMs`, up to `loadFactor` times that while all seats of the replica are busy.
 */
import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { Lease } from '../../sidecar/admission/types.js';
import { seeded } from '../support/load.js';
import { Agenda } from './agenda.js';
import { SHARED_TOKENS, StandInReplica } from './stand-in-replica.js';

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
  /** From a question to the end of its reply, ms. */
  readonly replyMs: readonly number[];
  /** When the last reply ended, ms. */
  readonly untilMs: number;
}

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
  readonly #waiting: number[];
  readonly #ttftMs: number[] = [];
  readonly #replyMs: number[] = [];
  /** Of each conversation's last question. */
  readonly #promptTokens = new Map<number, number>();
  #asked = 0;
  #prompted = 0;
  #reused = 0;
  #untilMs = 0;

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
        reusableTokens: (prefix, replica) => this.#reusableTokens(prefix[0] ?? 0, at + replica),
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
    return {
      reused: this.#reused / this.#prompted,
      ttftMs: this.#ttftMs,
      replyMs: this.#replyMs,
      untilMs: this.#untilMs,
    };
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
      this.#ttftMs.push(this.agenda.now() - askedAt);
      const replyTokenMs = stepMs * times * (1 + (loadFactor - 1) * replica.busyShare);
      this.agenda.after(replyTokens * replyTokenMs, () => {
        replica.leave(seat, conversation, promptTokens + replyTokens);
        this.#waiting[at] = (this.#waiting[at] ?? 0) - 1;
        for (let seen = WINDOW; observed && seen <= replyTokens; seen += WINDOW) lease.observeTokenMs(replyTokenMs);
        lease.release('done');
        this.#replyMs.push(this.agenda.now() - askedAt);
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
  #reusableTokens(conversation: number, at: number): number {
    const replica = this.#replicas[at];
    if (replica === undefined) return 0;
    if (this.#talks.by === 'queue' || !this.#isOneQueue()) return replica.longest(conversation);
    const promptTokens = this.#promptTokens.get(conversation) ?? 0;
    return -promptTokens * this.#costMs(replica, conversation, promptTokens);
  }

  /** What a request costs on a replica by the stand-ins' true times, which a queue could only learn, ms. */
  #costMs(replica: StandInReplica, conversation: number, promptTokens: number): number {
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
