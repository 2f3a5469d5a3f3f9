import type { CompletionUsage } from '../contracts/answers.js';
import type { Clock } from '../lib/clock.js';
import type { CallPart, Finished, Piece, ReplyWriter } from './reply-writers.js';

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
