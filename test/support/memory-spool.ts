import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import type { CursorFile } from '../../sidecar/usage/delivery/files.js';
import type { CountedSpool } from '../../sidecar/usage/durable-sums.js';
import type { Read } from '../../sidecar/usage/reader.js';
import type { Position } from '../../sidecar/usage/spool-format.js';

/** Lines in a segment. */
const LINES = 10;

/**
 * A spool in memory, ten lines a segment: records become durable when the test says so, a crash loses the rest, and
 * recovery closes open requests, as sidecar/usage/spool.ts does.
 */
export class MemorySpool implements CountedSpool {
  #lines: UsageRecord[] = [];
  #durable = 0;
  /** Lines that were pruned. */
  #pruned = 0;
  estimated: readonly UsageRecord[] = [];
  /** A position that is kept over restarts, as in a file beside the spool. */
  #cursor: Position | undefined;
  readonly cursor: Pick<CursorFile, 'load' | 'save'> = {
    load: () => Promise.resolve(this.#cursor ? { kind: 'at', position: this.#cursor } : { kind: 'none' }),
    save: (position) => Promise.resolve(void (this.#cursor = position)),
  };
  /** Rejects every read. */
  broken = false;

  get position(): Position {
    return place(this.#durable);
  }

  /** All lines, durable or not. */
  get lines(): readonly UsageRecord[] {
    return this.#lines;
  }

  append(record: UsageRecord): void {
    this.#lines.push(record);
  }

  sync(): Promise<boolean> {
    this.flush();
    return Promise.resolve(true);
  }

  flush(): void {
    this.#durable = this.#lines.length;
  }

  /** The process is killed and another opens what is left. */
  restart(): void {
    this.#lines = this.#lines.slice(0, this.#durable);
    const open = new Map<string, UsageRecord>();
    for (const record of this.#lines) {
      if (record.kind === 'close') open.delete(record.id);
      else open.set(record.id, record);
    }
    this.estimated = Array.from(open.values(), (last) => ({
      ...last,
      kind: 'close',
      outcome: 'failed',
      estimated: true,
    }));
    for (const record of this.estimated) this.append(record);
  }

  /** Drops whole segments before a position. */
  prune(before: Position): void {
    this.#pruned = (before.segment - 1) * LINES;
  }

  /** Loses everything. */
  wipe(): void {
    this.#lines = [];
    this.#durable = 0;
    this.#pruned = 0;
  }

  /** Each line is a byte. */
  bytesFrom(from: Position): number {
    return this.#durable - Math.max(index(from), this.#pruned);
  }

  oldest(): Promise<Position> {
    return Promise.resolve(place(this.#pruned));
  }

  async *read(from: Position, until: Position): AsyncGenerator<Read> {
    if (this.broken) throw new Error('cannot be read');
    for (let line = Math.max(index(from), this.#pruned); line < index(until); line += 1) {
      const record = this.#lines[line];
      if (!record) return;
      await Promise.resolve();
      yield { kind: 'record', record, after: place(line + 1) };
    }
  }
}

function place(line: number): Position {
  return { segment: Math.floor(line / LINES) + 1, offset: line % LINES };
}

function index({ segment, offset }: Position): number {
  return (segment - 1) * LINES + offset;
}
