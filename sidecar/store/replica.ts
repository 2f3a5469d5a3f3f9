/**
 * This sidecar as one replica of the fleet: it joins at its start, then says a third of a lease apart that it is alive.
 *
 *     apart ──join──> joined ──beat──> joined ...
 *       ^               │ └──another process joined with this data folder──> fenced, until this one ends
 *       └──the store does not know it: an earlier state was restored──┘
 *
 * While the store does not answer it goes on trying. What it had counted under its lease is no longer counted once that has ended, unless
 * the leases of all ended together (migrations/replicas.ts).
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../lib/clock.js';
import { replaceFile } from '../lib/replace-file.js';
import { VERSION } from '../lib/version.js';
import type { Log } from '../telemetry/logger.js';
import { sweep, type Answer, type Database } from './database.js';
import { SCHEMA_VERSION } from './migrate.js';

/** Beats in the time of a lease, so that one may be lost. */
const BEATS = 3;

/** The part of a lease that a beat may take, and the one that passes before joining again or a beat after one that failed. */
const TIMEOUT = 1 / 5;
const AGAIN = 1 / 10;

/** The time between two removals of replicas that are gone, by one replica, ms. */
const SWEEP_MS = 600_000;

/** Numbers of requests of one epoch. Those of 2^21 epochs are exact in a number. */
const NUMBERS = 2 ** 32;

/** Replicas' ids: 122 random bits each, in `dataDir`. */
const ID_FILE = 'replica-id';
const ID = /^[0-9a-f-]{36}$/;

/** How many replicas the store last knew, in `dataDir`. */
const COUNT_FILE = 'replica-count';
const COUNT = /^[1-9][0-9]{0,8}$/;

/** PostgreSQL's codes of a schema, function or permission that is missing: no wait makes these right. */
export const UNPREPARED: Readonly<Record<string, string>> = {
  '3F000': 'has no schema ra_sidecar: run ra-sidecar store migrate',
  '42883': 'has an older schema than this release needs: run ra-sidecar store migrate',
  '42501': 'does not let the user of store.url execute its functions: run ra-sidecar store migrate',
  '28P01': 'refuses the password of store.passwordFile',
  '28000': 'refuses the user of store.url',
  '3D000': 'has no such database as store.url names',
};

/** One start of this replica, as the store knows it. */
export interface Session {
  readonly no: number;
  readonly epoch: number;
  /** The store's count of this replica's beats, as of the last answer. */
  readonly beat: number;
}

interface Joined extends Session {
  readonly replicas: number;
}

export interface ReplicaOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly database: Database;
  readonly place: Place;
  readonly leaseMs: number;
}

/** What a data folder keeps of its replica over restarts. */
export interface Place {
  readonly id: string;
  /** How many replicas there were; undefined if the store has never answered. */
  readonly replicas: number | undefined;
  /** Keeps another number of replicas. Never rejects. */
  keep(replicas: number): Promise<void>;
}

/** Reads the place of this data folder's replica, or makes one. Rejects if the folder cannot be written. */
export async function placeIn(dataDir: string): Promise<Place> {
  const read = async (name: string): Promise<string> =>
    (await readFile(join(dataDir, name), 'utf8').catch(() => '')).trim();
  const write = (name: string, text: string): Promise<void> =>
    replaceFile(join(dataDir, name), (draft) => draft.writeFile(`${text}\n`));
  const [found, count] = [await read(ID_FILE), await read(COUNT_FILE)];
  const id = ID.test(found) ? found : randomUUID();
  if (id !== found) await write(ID_FILE, id);
  return {
    id,
    replicas: COUNT.test(count) ? Number(count) : undefined,
    // Without it a start while the store is down refuses what it would share.
    keep: (replicas) => write(COUNT_FILE, `${replicas}`).catch(() => undefined),
  };
}

/** The replica of one process. Owned by what opens the store, which closes it. */
export class Replica {
  readonly #options: ReplicaOptions;
  #session: Session | undefined;
  /** The highest epoch that this process knows of. */
  #epoch = 0;
  #run: number | undefined;
  /** Clock reading at which the lease ends, by this process's clock: never after it ends by the store's. */
  #leaseEnds = -Infinity;
  #replicas: number | undefined;
  #lastNumber = 0;
  #fenced = false;
  #closed = false;
  #trouble: string | undefined;
  #cancelTimer = (): void => undefined;
  #running: Promise<void> | undefined;
  readonly #followers: ((session: Session) => void)[] = [];

  /** Of what counts places: the lowest number of a request that still has one. */
  readonly oldest: (() => number)[] = [];

  constructor(options: ReplicaOptions) {
    this.#options = options;
    this.#replicas = options.place.replicas;
    this.sweeps('sweep_replicas', SWEEP_MS);
  }

  /** Undefined while this replica has not joined, and once it was fenced. */
  get session(): Session | undefined {
    return this.#session;
  }

  /** The first epoch of this process, which tells it from all others with this data folder; undefined while it has not joined. */
  get run(): number | undefined {
    return this.#run;
  }

  /** Whether its lease runs. Once it has ended the store may give away what was held for this replica. */
  get leased(): boolean {
    return this.#session !== undefined && this.#options.clock.now() < this.#leaseEnds;
  }

  /** Replicas with a lease, as of the last answer to this data folder's; undefined if there was none. */
  get replicas(): number | undefined {
    return this.#replicas;
  }

  /** Whether the store answered the last time. */
  get answered(): boolean {
    return this.#session !== undefined && this.#trouble === undefined;
  }

  get fenced(): boolean {
    return this.#fenced;
  }

  /** `fn` is called each time that the store has answered that it knows this replica: after joining, and after each beat. */
  onBeat(fn: (session: Session) => void): void {
    this.#followers.push(fn);
  }

  /** Calls a function of the store that removes what is over after beats, at least so many ms apart. */
  sweeps(fn: string, everyMs: number): void {
    let at = -Infinity;
    this.onBeat(() => {
      const now = this.#options.clock.now();
      if (now < at + everyMs) return;
      at = now;
      void sweep(this.#options.database, fn);
    });
  }

  /** The number of a request for which the store is asked now: above all of this replica so far, also of its earlier starts. */
  number(): number {
    return (this.#lastNumber += 1);
  }

  /** The number of the last request. */
  get lastNumber(): number {
    return this.#lastNumber;
  }

  /**
   * Joins, once, and goes on in the background. Returns in one line why the store is unfit; undefined if it is fit or does not answer yet.
   */
  async begin(): Promise<string | undefined> {
    const why = await this.#join();
    if (why !== undefined && UNPREPARED[why] === undefined) return undefined;
    return why === undefined ? undefined : `the store ${UNPREPARED[why]}`;
  }

  /** Says now that it is alive, or joins: the store answered that a lease has ended. */
  hurry(): void {
    if (!this.#running && !this.#fenced && !this.#closed) this.#turn();
  }

  /** Frees its places. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelTimer();
    await this.#running;
    const session = this.#session;
    this.#session = undefined;
    if (session) await this.#call('leave_fleet', [session.no, session.epoch]);
  }

  #turn(): void {
    this.#cancelTimer();
    this.#running = (this.#session ? this.#beat(this.#session) : this.#join().then(() => undefined)).finally(
      () => (this.#running = undefined),
    );
  }

  #later(ms: number): void {
    if (this.#closed || this.#fenced) return;
    this.#cancelTimer();
    this.#cancelTimer = this.#options.clock.after(ms, () => this.#turn());
  }

  /** Returns why it has not joined. */
  async #join(): Promise<string | undefined> {
    const { clock, place, leaseMs } = this.#options;
    const known = await this.#call<{ version: number }>('schema_version', []);
    const from = clock.now();
    const version = known.kind === 'rows' ? (known.rows[0]?.version ?? 0) : undefined;
    const joined =
      known.kind === 'down'
        ? known
        : (version ?? 0) < SCHEMA_VERSION
          ? { kind: 'down' as const, why: '42883' }
          : await this.#call<Joined>('join_fleet', [place.id, hostname(), VERSION, this.#epoch, leaseMs]);
    if (joined.kind === 'down') {
      this.#failed(joined.why);
      this.#later(leaseMs * AGAIN);
      return joined.why;
    }
    const [row] = joined.rows;
    if (row) this.#answered(row, from);
    return undefined;
  }

  async #beat({ no, epoch }: Session): Promise<void> {
    const { clock, leaseMs, log } = this.#options;
    const from = clock.now();
    const answer = await this.#call<Omit<Joined, 'no'>>('beat', [
      no,
      epoch,
      leaseMs,
      Math.min(...this.oldest.map((oldest) => oldest()), this.#lastNumber + 1),
    ]);
    if (answer.kind === 'down') {
      this.#failed(answer.why);
      this.#later(leaseMs * AGAIN);
      return;
    }
    const [row] = answer.rows;
    if (row?.epoch === epoch) {
      this.#answered({ no, ...row }, from);
    } else if (row && row.epoch > epoch) {
      this.#fenced = true;
      this.#session = undefined;
      log.error('store has another replica in this place', {
        reason: 'another sidecar started with this dataDir or a copy of it: stop one, and give each its own dataDir',
      });
    } else {
      // The store was restored to a state before this start.
      this.#session = undefined;
      this.#later(0);
    }
  }

  /** `from`: clock reading before the store was asked. */
  #answered({ no, epoch, beat, replicas }: Joined, from: number): void {
    if (this.#trouble !== undefined || !this.#session) this.#options.log.info('store answers', { count: replicas });
    this.#trouble = undefined;
    this.#session = { no, epoch, beat };
    if (epoch !== this.#epoch) this.#lastNumber = epoch * NUMBERS;
    this.#epoch = epoch;
    this.#run ??= epoch;
    this.#leaseEnds = from + this.#options.leaseMs;
    if (replicas !== this.#replicas) void this.#options.place.keep(replicas);
    this.#replicas = replicas;
    for (const follower of this.#followers) follower(this.#session);
    this.#later(this.#options.leaseMs / BEATS);
  }

  #call<Row>(fn: string, args: readonly unknown[]): Promise<Answer<Row>> {
    const { database, leaseMs } = this.#options;
    return database.call<Row>(fn, args, { lane: 'lease', withinMs: leaseMs * TIMEOUT });
  }

  #failed(why: string): void {
    if (why === this.#trouble) return;
    this.#trouble = why;
    this.#options.log.warn('store does not answer', { reason: UNPREPARED[why] ?? why });
  }
}
