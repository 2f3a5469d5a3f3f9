import { IdMap } from '../lib/id-map.js';
import { Blocks } from './send-buffer.js';

/** Why a reader was cut off, its connection closed: the bound of its own stream, or that of all streams, was exceeded. */
export type CutReason = 'stream' | 'total';

/** Bounds of the bytes that wait for readers, as on the wire. */
export interface BacklogLimits {
  /** Of one stream. */
  readonly streamBytes: number;
  /** Of all streams together. */
  readonly totalBytes: number;
}

/** A stream whose backlog is counted. */
export interface Backlogged {
  /** From {@link Backlog.newId}. */
  readonly id: number;
  /** Upper bound of the bytes that wait for the reader; exact only while {@link usesBackpressure} is true. */
  readonly buffered: number;
  /** From {@link useBackpressure} on `buffered` is exact. */
  readonly usesBackpressure: boolean;
  /** A whole reply, whose length its handler bounds: only the total applies to it. */
  readonly whole?: boolean;
  useBackpressure(): void;
  /** Closes the connection and drops the stream's data. */
  cutOff(reason: CutReason): void;
}

/**
 * Counts what all streams of a server buffer for slow readers. No connection is closed on an upper bound: a stream
 * whose backlog is not known exactly first switches to writing with backpressure, which usually shows that nothing
 * waits.
 */
export class Backlog {
  /** The memory for waiting data. */
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

  /** A number that identifies a stream here. */
  newId(): number {
    return ++this.#lastId;
  }

  /**
   * `stream.buffered` changed by `delta`. May call `useBackpressure` or `cutOff` on streams, including this one. Must not be called while
   * a write is corked.
   */
  changed(stream: Backlogged, delta: number): void {
    this.#bytes += delta;
    if (stream.buffered === 0) this.#streams.delete(stream.id);
    else this.#streams.set(stream.id, stream);
    if (delta <= 0) return;
    const { streamBytes, totalBytes } = this.#limits;
    // At half of the bound, so that the other half remains for data that arrives meanwhile.
    if (!stream.usesBackpressure && stream.buffered > streamBytes / 2) stream.useBackpressure();
    if (stream.usesBackpressure && stream.whole !== true && stream.buffered > streamBytes) stream.cutOff('stream');
    while (this.#bytes > totalBytes) {
      const worst = this.#worst();
      if (worst === undefined) return;
      if (worst.usesBackpressure) worst.cutOff('total');
      else worst.useBackpressure();
    }
  }

  #worst(): Backlogged | undefined {
    let worst: Backlogged | undefined;
    for (const stream of this.#streams.values())
      if (worst === undefined || stream.buffered > worst.buffered) worst = stream;
    return worst;
  }
}
