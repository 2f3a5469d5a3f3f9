/**
 * Idempotency-Keys of a fleet, in the store (migrations/claims.ts). A key is claimed before its request runs, in one durable round
 * trip; how the request ended is sent after its answer by {@link Ends}. A process that was killed in between has the key's id in its
 * spool, beside the close of a request that was completed: its next start completes those keys and gives up the others.
 */
import type { FleetClaimed, IdempotencyClaims } from '../access/idempotency.js';
import type { Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import type { Database } from './database.js';
import { Ends, type Left } from './ends.js';
import { RETRY_MS, uuidOf } from './limits.js';
import type { Replica } from './replica.js';

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
  /** How long a key is remembered after its request was completed, ms. */
  readonly keepMs: number;
}

/** The used keys of all replicas. */
export class StoreClaims implements IdempotencyClaims {
  readonly #options: StoreClaimsOptions;
  readonly ends: Ends<boolean>;

  constructor(options: StoreClaimsOptions) {
    this.#options = options;
    const left: Left<boolean> = {
      log: options.log,
      fn: 'left_claims',
      nameOf: ({ claim }) => claim,
      // Of a request whose records are gone it is not known whether it was completed.
      howOf: (closes, gone) => gone || closes.some(({ outcome }) => outcome === 'done'),
    };
    this.ends = new Ends({ ...options, fn: 'finish', none: false, left });
    options.replica.sweeps('sweep_claims', SWEEP_MS);
  }

  async claim(account: string, key: string, fingerprint: string): Promise<FleetClaimed> {
    const { database, replica, keepMs } = this.#options;
    const { session } = replica;
    if (!session) return { kind: 'unavailable', retryAfterMs: RETRY_MS };
    const { no, epoch, beat } = session;
    const id = uuidOf(`${account}\0${key}`);
    const from = this.ends.position;
    const request = this.ends.begin([id], beat);
    const print = Buffer.from(fingerprint, 'binary');
    const claim = [no, epoch, beat, request, id, print, keepMs, from.segment, from.offset];
    const answer = await database.call<Row>('claim', claim);
    const row = answer.kind === 'rows' ? answer.rows[0] : undefined;
    if (row?.outcome === 'claimed') {
      let over = false;
      const end = (completed: boolean): void => {
        if (!over) this.ends.end(request, completed);
        over = true;
      };
      return { kind: 'claimed', claim: { id, complete: () => end(true), release: () => end(false) } };
    }
    this.ends.none(request, answer.kind === 'down' && answer.sent);
    if (row && row.outcome !== 'fenced' && row.outcome !== 'late') return { kind: row.outcome };
    if (row?.outcome === 'fenced') replica.hurry();
    return { kind: 'unavailable', retryAfterMs: answer.kind === 'down' ? answer.retryAfterMs : RETRY_MS };
  }
}
