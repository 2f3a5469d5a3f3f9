import { join } from 'node:path';
import { open } from 'lmdb';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import type { Subject } from './subjects.js';

/**
 * LMDB with lmdb-js, which combines writes of about the same time in one transaction. Its sync is part of the commit.
 */
export function lmdb(dir: string): Subject {
  // Rising keys, so that it appends as the spool does.
  let next = 0;
  const db = open<string, string>(join(dir, 'lmdb'), { encoding: 'string', overlappingSync: false });
  return {
    name: 'lmdb, a put per record',
    write: async (record: UsageRecord) => {
      await db.put(String(next++).padStart(12, '0'), JSON.stringify(record));
    },
    close: () => db.close(),
  };
}
