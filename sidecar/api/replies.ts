/** What writers of generated replies have in common, whatever the form of the answer, and when their frames are sent. */
import { randomInt } from 'node:crypto';
import type { CompletionUsage } from '../contracts/answers.js';
import type { GenerationReceiver } from '../engine-client/engine.js';
import type { Clock } from '../lib/clock.js';

export type Piece = Parameters<GenerationReceiver['piece']>[0];
export type CallPart = Parameters<GenerationReceiver['call']>[0];
export type Finished = Parameters<GenerationReceiver['finished']>[0];

export interface ReplyWriter {
  /** The version of the weights that generate the reply; called before its first piece. Absent: the reply does not contain it. */
  madeBy?(weightVersion: string): void;
  piece(piece: Piece): void;
  call(part: CallPart): void;
  finished(end: Finished): void;
  done(usage: CompletionUsage): void;
}

/** A stream whose caller asks for its place in the queue is told it at most so often, ms. */
export const QUEUE_COMMENT_MS = 2000;

/** Notices when a stream has sent nothing for an interval, or its place is to be told. The first interval begins at the construction. */
export class StreamKeepAlive {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #idle: () => void;
  readonly #tellPlace: () => boolean;
  #cancelTimer: () => void;
  #sentAt: number;
  /** Infinity: its caller does not ask for its place. */
  #tellsAt: number;

  /**
   * `idle` is called each time that nothing was sent for `intervalMs`; it sends a keep-alive. `tellPlace` is called every
   * {@link QUEUE_COMMENT_MS}, and returns false if it sent nothing since the request does not wait; undefined if it is not to be called.
   */
  constructor(clock: Clock, intervalMs: number, idle: () => void, tellPlace?: () => boolean) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
    this.#idle = idle;
    this.#tellPlace = tellPlace ?? (() => false);
    this.#sentAt = clock.now();
    this.#tellsAt = tellPlace ? this.#sentAt + QUEUE_COMMENT_MS : Infinity;
    this.#cancelTimer = this.#look();
  }

  /** Call it with each event that is sent. It sets no timer, since a stream sends many. */
  sent(): void {
    this.#sentAt = this.#clock.now();
  }

  /** Stops the timer. Idempotent. */
  close(): void {
    this.#cancelTimer();
  }

  #look(): () => void {
    const dueAt = Math.min(this.#sentAt + this.#intervalMs, this.#tellsAt);
    return this.#clock.after(dueAt - this.#clock.now(), () => {
      const now = this.#clock.now();
      const tells = now >= this.#tellsAt;
      if (tells) this.#tellsAt = now + QUEUE_COMMENT_MS;
      const told = tells && this.#tellPlace();
      const silent = now - this.#sentAt >= this.#intervalMs;
      if (told || silent) this.sent();
      this.#cancelTimer = this.#look();
      if (silent && !told) this.#idle();
    });
  }
}

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** Nine letters and digits, as Mistral's templates require of calls and all others accept. Unique within one conversation. */
export function newCallId(): string {
  return Array.from({ length: 9 }, () => DIGITS[randomInt(DIGITS.length)] ?? '').join('');
}
