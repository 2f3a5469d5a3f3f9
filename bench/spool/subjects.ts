/** Ways to make usage records durable, to be measured alike. */
import { open, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../sidecar/lib/clock.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { Spool } from '../../sidecar/usage/spool.js';
import { encode } from '../../sidecar/usage/spool-format.js';

export interface Subject {
  readonly name: string;
  /** Resolves once the record is durable. */
  write(record: UsageRecord): Promise<void>;
  close(): Promise<void>;
}

/** The sidecar's own spool with its defaults. */
export async function spool(dir: string): Promise<Subject> {
  const opened = await Spool.open(
    join(dir, 'usage'),
    {
      segmentBytes: 16 << 20,
      groupMs: 5,
      groupRecords: 64,
      maxUnsyncedMs: 2000,
      minFreeBytes: 0,
      maxBacklogBytes: 2 ** 40,
      probeMs: 1000,
      closeWaitMs: 60_000,
    },
    { clock: systemClock },
  );
  if (opened.kind === 'held') throw new Error('the folder is in use');
  return {
    name: 'the spool',
    write: async (record) => {
      opened.spool.append(record);
      await opened.spool.sync(record);
    },
    close: async () => {
      await opened.spool.close();
    },
  };
}

/** The same lines, each with a write and an fdatasync of its own, one after another. */
export async function eachAlone(dir: string): Promise<Subject> {
  const file: FileHandle = await open(join(dir, 'alone'), 'wx');
  let last = Promise.resolve();
  return {
    name: 'one fdatasync per record',
    write: (record) => {
      last = last.then(async () => {
        await file.write(encode(record));
        await file.datasync();
      });
      return last;
    },
    close: () => file.close(),
  };
}
