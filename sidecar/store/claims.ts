/**
 * Idempotency-Keys of a fleet, in the store (migrations/claims.ts). A key is claimed before its request runs, in one durable round
 * trip; how the request ended is sent after its answer by {@link Ends}. A process that was killed in between has the key's id in its
 * spool, beside the close of a request that was completed: its next start completes those keys and gives up the others.
 */
import { createHash } from 'node:crypto';
import type { FleetClaimed, IdempotencyClaims } from '../access/idempotency.js';
import { comparePositions, START, type Position } from '../usage/spool-format.js';
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

/**
 * How long the spool is kept for keys of an earlier start while the store does not answer, ms. Later the records that tell how their
 * requests ended may be gone; such a key counts as completed.
 */
const HOLD_MS = 600_000;

interface Row {
  readonly outcome: 'claimed' | 'in-flight' | 'completed' | 'other-body' | 'fenced' | 'late';
}

/** A key that an earlier start left in flight. */
interface LeftRow {
  readonly id: string;
  readonly segment: string;
  readonly byte: string;
}

type ReadSpool = Pick<CountedSpool, 'position' | 'oldest' | 'read'>;

export interface StoreClaimsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly database: Database;
  readonly replica: Replica;
  /** How long a key is remembered after its request was completed, ms. */
  readonly keepMs: number;
}

/** The used keys of all replicas. */
export class StoreClaims implements IdempotencyClaims {
  readonly #options: StoreClaimsOptions;
  readonly #ends: Ends<boolean>;
  readonly #holdUntil: number;
  #spool: ReadSpool | undefined;
  /** The epoch whose predecessors' keys were looked for. */
  #settled = 0;
  #settling = false;

  constructor(options: StoreClaimsOptions) {
    this.#options = options;
    this.#ends = new Ends({ ...options, fn: 'finish', none: false });
    this.#holdUntil = options.clock.now() + HOLD_MS;
    options.replica.sweeps('sweep_claims', SWEEP_MS);
    options.replica.onBeat((session) => void this.#settle(session));
  }

  /** Keys for which the store holds something, or may hold something. */
  get size(): number {
    return this.#ends.size;
  }

  /** The position from which the spool's records are still needed: their keys are in flight in the store. Undefined if none is needed. */
  get keepFrom(): Position | undefined {
    const isHeld = this.#settled === 0 && this.#options.clock.now() < this.#holdUntil;
    return isHeld ? START : this.#ends.oldestFrom;
  }

  /** The spool has recovered: what an earlier start left in flight can be looked for in it. */
  recovered(spool: ReadSpool): void {
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
    const from = this.#spool?.position ?? START;
    const request = this.#ends.begin([id], beat, from);
    const print = Buffer.from(fingerprint, 'binary');
    const claim = [no, epoch, beat, request, id, print, keepMs, from.segment, from.offset];
    const answer = await database.call<Row>('claim', claim);
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
    if (row?.outcome === 'fenced') replica.hurry();
    return { kind: 'unavailable', retryAfterMs: answer.kind === 'down' ? answer.retryAfterMs : RETRY_MS };
  }

  /** Sends the ends that are known, if the store answers. */
  close(): Promise<void> {
    return this.#ends.close();
  }

  /** Ends what earlier starts of this replica left in flight, once for each epoch. Tried again with the next beat if it fails. */
  async #settle({ no, epoch }: Session): Promise<void> {
    const spool = this.#spool;
    if (!spool || this.#settling || this.#settled === epoch) return;
    this.#settling = true;
    try {
      const { database, log } = this.#options;
      let count = 0;
      for (;;) {
        const left = await database.call<LeftRow>('left_claims', [no, epoch]);
        if (left.kind === 'down') return;
        if (left.rows.length === 0) break;
        const completed = await completedOf(spool, left.rows);
        const others = left.rows.map(({ id }) => id).filter((id) => !completed.has(id));
        const done = await database.call('settle_claims', [no, epoch, [...completed], others]);
        if (done.kind === 'down') return;
        count += left.rows.length;
      }
      if (count > 0) log.info('idempotency keys of the last run settled', { count });
      this.#settled = epoch;
    } catch (fault) {
      this.#options.log.error('idempotency keys of the last run not settled', { fault });
    } finally {
      this.#settling = false;
    }
  }
}

/** The ids of those whose requests were completed, or whose records the spool no longer has. Rejects if the spool cannot be read. */
async function completedOf(spool: ReadSpool, left: readonly LeftRow[]): Promise<Set<string>> {
  const oldest = await spool.oldest();
  const from = left
    .map(({ segment, byte }) => ({ segment: Number(segment), offset: Number(byte) }))
    .sort(comparePositions);
  const completed = new Set<string>();
  /** By the id that records have. */
  const ids = new Map<string, string>();
  for (const { id, segment, byte } of left) {
    if (comparePositions({ segment: Number(segment), offset: Number(byte) }, oldest) < 0) completed.add(id);
    else ids.set(id.replaceAll('-', ''), id);
  }
  const first = from[0] ?? oldest;
  const begin = comparePositions(first, oldest) < 0 ? oldest : first;
  for await (const read of spool.read(begin, spool.position)) {
    if (read.kind === 'damage') continue;
    const { kind, outcome, claim = '' } = read.record;
    const id = ids.get(claim);
    if (kind === 'close' && outcome === 'done' && id !== undefined) completed.add(id);
  }
  return completed;
}
