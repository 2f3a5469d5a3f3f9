import { IdMap } from '../lib/id-map.js';
import { Blocks } from './send-buffer.js';

/** Why a reader was cut off: its own stream's share was used up, or that of all streams. */
export type CutReason = 'stream' | 'total';

/** What may wait for readers, in bytes as on the wire. */
export interface BacklogLimits {
  /** Of one stream. */
  readonly streamBytes: number;
  /** Of all streams together. */
  readonly totalBytes: number;
}

/** A stream in the book. */
export interface Backlogged {
  /** From {@link Backlog.newId}. */
  readonly id: number;
  /** Bytes that may still wait for the reader: never too few; too many while {@link asked} is false. */
  readonly buffered: number;
  /** From {@link ask} on `buffered` is what really waits. */
  readonly asked: boolean;
  /** A whole reply, whose length is its handler's matter: only the total applies to it. */
  readonly whole?: boolean;
  ask(): void;
  /** Closes the connection; nothing of the stream waits any more. */
  cut(reason: CutReason): void;
}

/**
 * The book of what all streams of a server hold for readers who are behind. Nobody is cut off on a guess: a stream of
 * which it is not known what was read is asked first, and most turn out to hold nothing.
 */
export class Backlog {
  /** The memory that what waits lies in. */
  readonly blocks = new Blocks();
  readonly #limits: BacklogLimits;
  readonly #streams = new IdMap<Backlogged>();
  #lastId = 0;
  #bytes = 0;

  constructor(limits: BacklogLimits) {
    this.#limits = limits;
  }

  /** Of all streams together, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A number for a stream that this book is to know it by. */
  newId(): number {
    return ++this.#lastId;
  }

  /** `stream.buffered` changed by `delta`. May ask or cut streams, this one too. Not to be called while a write is corked. */
  changed(stream: Backlogged, delta: number): void {
    this.#bytes += delta;
    if (stream.buffered === 0) this.#streams.delete(stream.id);
    else this.#streams.set(stream.id, stream);
    if (delta <= 0) return;
    const { streamBytes, totalBytes } = this.#limits;
    // At half, so that the other half is left for what comes while a reader is behind.
    if (!stream.asked && stream.buffered > streamBytes / 2) stream.ask();
    if (stream.asked && stream.whole !== true && stream.buffered > streamBytes) stream.cut('stream');
    while (this.#bytes > totalBytes) {
      const worst = this.#worst();
      if (worst === undefined) return;
      if (worst.asked) worst.cut('total');
      else worst.ask();
    }
  }

  #worst(): Backlogged | undefined {
    let worst: Backlogged | undefined;
    for (const stream of this.#streams.values())
      if (worst === undefined || stream.buffered > worst.buffered) worst = stream;
    return worst;
  }
}
