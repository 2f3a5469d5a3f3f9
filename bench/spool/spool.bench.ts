/**
 * The time to make usage durable: `node dist/bench/spool/spool.bench.js`, part of `make bench`. So many callers each
 * write a record, wait until it is durable and write the next.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile, shown } from '../support/stats.js';
import { lmdb } from './lmdb-peer.js';
import { eachAlone, spool, type Subject } from './subjects.js';

const CALLERS = [1, 8, 64, 512] as const;
const SECONDS = Number(process.argv[2] ?? 5);
/** Not counted: files grow, code is compiled. */
const WARM_SECONDS = 0.5;
/** Beside the sources, since /tmp may be memory. */
const CACHE = fileURLToPath(new URL('../../../bench/.cache/', import.meta.url));

function record(): UsageRecord {
  return {
    id: randomUUID(),
    requestId: randomUUID(),
    kind: 'close',
    at: new Date().toISOString(),
    account: 'acme',
    keyId: 'key_AmisZ5c4Kb0P',
    model: 'ra-tiny-chat',
    route: 'chat',
    promptTokens: 1234,
    cachedTokens: 1024,
    completionTokens: 256,
    price: { version: '2026-10-03.4', picodollars: '51828000' },
    outcome: 'done',
  };
}

async function measure(subject: Subject, callers: number): Promise<Row> {
  const times: number[] = [];
  const from = performance.now() + WARM_SECONDS * 1000;
  const until = from + SECONDS * 1000;
  const caller = async (): Promise<void> => {
    for (let start = performance.now(); start < until;) {
      await subject.write(record());
      const end = performance.now();
      if (start >= from) times.push(end - start);
      start = end;
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return {
    how: subject.name,
    callers,
    'records/s': times.length / SECONDS,
    'p50 ms': median(times),
    'p99 ms': quantile(times, 0.99),
  };
}

/** The disk alone: 400 bytes appended and synced, ms. */
async function bareSync(dir: string): Promise<number> {
  const file = await open(join(dir, 'bare'), 'wx');
  const times: number[] = [];
  for (let i = 0; i < 200; i++) {
    const start = performance.now();
    await file.write(Buffer.alloc(400, 'x'));
    await file.datasync();
    times.push(performance.now() - start);
  }
  await file.close();
  return median(times);
}

const SUBJECTS: readonly ((dir: string) => Promise<Subject> | Subject)[] = [spool, eachAlone, lmdb];

const rows: Row[] = [];
// The timers of the spool keep no process alive.
const awake = setInterval(() => undefined, 60_000);
await mkdir(CACHE, { recursive: true });
const scratch = await mkdtemp(join(CACHE, 'spool-'));
try {
  const bare = await bareSync(scratch);
  for (const callers of CALLERS) {
    for (const [i, make] of SUBJECTS.entries()) {
      const dir = await mkdtemp(join(scratch, `${callers}-${i}-`));
      const subject = await make(dir);
      rows.push(await measure(subject, callers));
      await subject.close();
    }
  }
  await keep('spool', {
    title: 'Making usage durable',
    about: [
      `Each of so many callers writes a record of some 400 bytes, waits until it is durable and writes the next, for ${SECONDS} s. Times are from append to durable: what a reply waits for before its last bytes.`,
      `The disk alone takes ${shown(bare)} ms for a write and an fdatasync (median of 200).`,
      'lmdb: `overlappingSync: false`, so that its promise says durable; it makes one transaction of puts that come together.',
    ],
    rows,
  });
} finally {
  clearInterval(awake);
  await rm(scratch, { recursive: true, force: true });
}
