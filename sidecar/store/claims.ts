/**
 * Idempotency-Keys of a fleet, in the store (migrations/claims.ts). A key is claimed before its request runs, in one durable round
 * trip; how the request ended is sent after its answer by {@link Ends}. A process that was killed in between has the key's id in its
 * spool, beside the close of a request that was completed: its next start completes those keys and gives up the others.
 */
import { createHash } from 'node:crypto';
import type { FleetClaimed, IdempotencyClaims } from '../access/idempotency.js';
import type { Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import type { CountedSpool } from '../usage/durable-sums.js';
import type { Database } from './database.js';
import { Ends } from './ends.js';
import type { Replica, Session } from './replica.js';

/** The wait while the store does not answer, ms. */
const RETRY_MS = 1000;

/** The time between two removals of keys that are over, by one replica, ms. */
const SWEEP_MS = 300_000;

interface Row {
  readonly outcome: 'claimed' | 'in-flight' | 'completed' | 'other-body' | 'fenced' | 'late';
}

export interface StoreClaimsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly database: Database;
  readonly replica: Replica;
  /** How long a key is remembered from its claim on, ms. */
  readonly keepMs: number;
}

/** The used keys of all replicas. */
export class StoreClaims implements IdempotencyClaims {
  readonly #options: StoreClaimsOptions;
  readonly #ends: Ends;
  #spool: Pick<CountedSpool, 'position' | 'oldest' | 'read'> | undefined;
  /** The epoch whose predecessors' keys were looked for. */
  #settled = 0;
  #settling = false;
  #sweptAt = -Infinity;

  constructor(options: StoreClaimsOptions) {
    this.#options = options;
    this.#ends = new Ends({ ...options, fn: 'finish' });
    options.replica.onBeat((session) => {
      this.#sweep();
      void this.#settle(session);
    });
  }

  /** Whether records of the spool are needed: a key of theirs is in flight in the store. */
  get needsSpool(): boolean {
    return this.#settled === 0 || this.#ends.owes;
  }

  /** The spool has recovered: what an earlier start left in flight can be looked for in it. */
  recovered(spool: Pick<CountedSpool, 'position' | 'oldest' | 'read'>): void {
    this.#spool = spool;
    const { session } = this.#options.replica;
    if (session) void this.#settle(session);
  }

  async claim(account: string, key: string, fingerprint: string): Promise<FleetClaimed> {
    const { database, replica, keepMs } = this.#options;
    const { session } = replica;
    if (!session) return { kind: 'unavailable', retryAfterMs: RETRY_MS };
    const { no, epoch, beat } = session;
    const id = createHash('sha256').update(`${account}\0${key}`).digest('hex').slice(0, 32);
    const request = this.#ends.begin(id, beat);
    const print = Buffer.from(fingerprint, 'binary');
    const answer = await database.call<Row>('claim', [no, epoch, beat, request, id, print, keepMs]);
    const row = answer.kind === 'rows' ? answer.rows[0] : undefined;
    if (row?.outcome === 'claimed') {
      let over = false;
      const end = (completed: boolean): void => {
        if (!over) this.#ends.end(request, completed);
        over = true;
      };
      return { kind: 'claimed', claim: { id, complete: () => end(true), release: () => end(false) } };
    }
    if (answer.kind === 'down' && answer.sent) this.#ends.lost(request);
    else this.#ends.none(request);
    if (row && row.outcome !== 'fenced' && row.outcome !== 'late') return { kind: row.outcome };
    if (row) replica.hurry();
    return { kind: 'unavailable', retryAfterMs: answer.kind === 'down' ? answer.retryAfterMs : RETRY_MS };
  }

  /** Sends the ends that are known, if the store answers. */
  close(): Promise<void> {
    return this.#ends.close();
  }

  #sweep(): void {
    const now = this.#options.clock.now();
    if (now < this.#sweptAt + SWEEP_MS) return;
    this.#sweptAt = now;
    void this.#options.database.call('sweep_claims', []);
  }

  /** Ends what earlier starts of this replica left in flight, once for each epoch. Tried again with the next beat if it fails. */
  async #settle({ no, epoch }: Session): Promise<void> {
    const spool = this.#spool;
    if (!spool || this.#settling || this.#settled === epoch) return;
    this.#settling = true;
    try {
      const { database, log } = this.#options;
      const left = await database.call<{ id: string }>('left_claims', [no, epoch]);
      if (left.kind === 'down') return;
      const ids = new Set(left.rows.map(({ id }) => id.replaceAll('-', '')));
      const completed = ids.size === 0 ? [] : await completedOf(spool, ids);
      if (ids.size > 0) {
        for (const id of completed) ids.delete(id);
        const done = await database.call('settle_claims', [no, epoch, completed, [...ids]]);
        if (done.kind === 'down') return;
        log.info('idempotency keys of the last run settled', { count: completed.length + ids.size });
      }
      this.#settled = epoch;
    } catch (fault) {
      this.#options.log.error('idempotency keys of the last run not settled', { fault });
    } finally {
      this.#settling = false;
    }
  }
}

/** Those of the ids whose requests were completed. Rejects if the spool cannot be read. */
async function completedOf(
  spool: Pick<CountedSpool, 'position' | 'oldest' | 'read'>,
  ids: ReadonlySet<string>,
): Promise<string[]> {
  const found = new Set<string>();
  for await (const read of spool.read(await spool.oldest(), spool.position)) {
    if (read.kind === 'damage') continue;
    const { kind, outcome, claim } = read.record;
    if (kind === 'close' && outcome === 'done' && claim !== undefined && ids.has(claim)) found.add(claim);
  }
  return [...found];
}
