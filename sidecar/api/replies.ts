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
  /** Sends pieces that wait to be joined, before an error ends the reply. Absent: none ever wait. */
  flush?(): void;
  /** All replies are complete. */
  done(usage: CompletionUsage): void;
}

/** The part of one reply that waits for the end of the interval: text of one channel, or arguments of one call. */
type PendingPiece = { readonly parts: string[]; tokens: number } & (
  | { readonly kind: 'piece'; readonly channel: Piece['channel'] }
  | { readonly kind: 'call'; readonly index: number; readonly name?: string }
);

/**
 * Joins the pieces of an interval into one frame for each reply (`stream.intervalMs`). A piece that comes after an
 * interval without any is sent at once, so the first token is never delayed.
 */
export class JoinedWriter implements ReplyWriter {
  readonly #writer: ReplyWriter;
  readonly #clock: Clock;
  readonly #intervalMs: number;
  /** By choice: n at most. */
  readonly #pending = new Map<number, PendingPiece>();
  #cancelTimer: (() => void) | undefined;

  constructor(writer: ReplyWriter, clock: Clock, intervalMs: number) {
    this.#writer = writer;
    this.#clock = clock;
    this.#intervalMs = intervalMs;
  }

  madeBy(weightVersion: string): void {
    this.#writer.madeBy?.(weightVersion);
  }

  piece(piece: Piece): void {
    const { choice, channel, text, tokens } = piece;
    if (this.#cancelTimer === undefined) {
      this.#writer.piece(piece);
      this.#arm();
      return;
    }
    const pending = this.#pending.get(choice);
    if (pending?.kind === 'piece' && pending.channel === channel) {
      pending.parts.push(text);
      pending.tokens = tokens;
      return;
    }
    this.#pass(choice);
    this.#pending.set(choice, { kind: 'piece', channel, parts: [text], tokens });
  }

  call(part: CallPart): void {
    const { choice, index, name, arguments: text, tokens } = part;
    if (this.#cancelTimer === undefined) {
      this.#writer.call(part);
      this.#arm();
      return;
    }
    const pending = this.#pending.get(choice);
    if (pending?.kind === 'call' && pending.index === index && name === undefined) {
      pending.parts.push(text);
      pending.tokens = tokens;
      return;
    }
    this.#pass(choice);
    this.#pending.set(choice, { kind: 'call', index, parts: [text], tokens, ...(name !== undefined && { name }) });
  }

  finished(end: Finished): void {
    this.#pass(end.choice);
    this.#writer.finished(end);
  }

  done(usage: CompletionUsage): void {
    this.flush();
    this.#writer.done(usage);
  }

  flush(): void {
    for (const choice of [...this.#pending.keys()]) this.#pass(choice);
  }

  /** Stops the timer. Idempotent. */
  close(): void {
    this.#cancelTimer?.();
  }

  #arm(): void {
    this.#cancelTimer = this.#clock.after(this.#intervalMs, () => {
      this.#cancelTimer = undefined;
      if (this.#pending.size === 0) return;
      this.flush();
      this.#arm();
    });
  }

  #pass(choice: number): void {
    const pending = this.#pending.get(choice);
    if (pending === undefined) return;
    this.#pending.delete(choice);
    const { parts, tokens } = pending;
    const text = parts.join('');
    if (pending.kind === 'piece') this.#writer.piece({ choice, channel: pending.channel, text, tokens });
    else {
      const { index, name } = pending;
      this.#writer.call({ choice, index, arguments: text, tokens, ...(name !== undefined && { name }) });
    }
  }
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

/**
 * Nine letters and digits, which Mistral's templates require of calls in a conversation and all others accept. It has to be unique
 * within one conversation only.
 */
export function newCallId(): string {
  return Array.from({ length: 9 }, () => DIGITS[randomInt(DIGITS.length)] ?? '').join('');
}
