/** Tokens by which the queue knows prefixes. */
const CHUNK = 64;
/** Tokens of a system prompt that all conversations share. */
export const SHARED_TOKENS = 256;

/** What a seat keeps: tokens of one conversation. */
interface Seat {
  conversation: number;
  tokens: number;
  live: boolean;
  usedAt: number;
}

/** A replica without an engine: what its seats keep of conversations. */
export class StandInReplica {
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
