import { setImmediate } from 'node:timers/promises';
import type { Removed } from '../../sidecar/usage/segment-writer.js';
import { Spool, type Health, type SpoolOptions } from '../../sidecar/usage/spool.js';
import type { Lock } from '../../sidecar/usage/lock.js';
import type { Recovered } from '../../sidecar/usage/recovery.js';
import { FakeClock } from './fake-clock.js';
import { FakeDisk } from './fake-disk.js';
import { readAll, short } from './usage-records.js';

export const DIR = '/usage';

export const OPTIONS: SpoolOptions = {
  segmentBytes: 1 << 20,
  groupMs: 5,
  groupRecords: 64,
  maxUnsyncedMs: 2000,
  minFreeBytes: 1000,
  maxBacklogBytes: 1 << 30,
  probeMs: 1000,
  closeWaitMs: 10_000,
};

/** Lets everything finish that needs only turns of the event loop. The fake disk needs few. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await setImmediate();
}

/** A durable spool on a disk in memory, which outlives it, and a clock that does not advance by itself. */
export class SpoolHarness {
  /** Another one with each start: the timers of a process end with it. */
  clock = new FakeClock();
  readonly disk = new FakeDisk();
  readonly options: SpoolOptions;
  readonly health: Health[] = [];
  readonly errors: unknown[] = [];
  readonly overdue: string[] = [];
  readonly groups: number[] = [];
  dropped = 0;
  readonly removed: (Removed & { readonly records: number })[] = [];
  readonly taken: number[] = [];
  /** The lock’s state when the spool checks it. */
  lock: Awaited<ReturnType<Lock['check']>> = { kind: 'kept' };
  spool!: Spool;
  recovered!: Recovered;

  private constructor(options: Partial<SpoolOptions>) {
    this.options = { ...OPTIONS, ...options };
  }

  /** On a disk with these files. */
  static async on(files: Iterable<readonly [string, Buffer]>): Promise<SpoolHarness> {
    const harness = new SpoolHarness({});
    for (const [path, bytes] of files) harness.disk.put(path, bytes);
    await harness.open();
    return harness;
  }

  static async start(options: Partial<SpoolOptions> = {}): Promise<SpoolHarness> {
    const harness = new SpoolHarness(options);
    await harness.open();
    return harness;
  }

  /** Opens the spool on the disk, as a process that starts does. */
  async open(): Promise<void> {
    this.clock = new FakeClock();
    const opened = await Spool.open(DIR, this.options, {
      clock: this.clock,
      disk: this.disk.mount(),
      lock: () =>
        Promise.resolve({
          kind: 'locked',
          check: () => Promise.resolve(this.lock),
          release: () => Promise.resolve(),
        }),
      hooks: {
        durable: (_, records) => this.groups.push(records),
        failed: (error) => this.errors.push(error),
        health: (health) => this.health.push(health),
        overdue: ({ id }) => this.overdue.push(id),
        dropped: () => this.dropped++,
        removed: (removed, records) => this.removed.push({ ...removed, records }),
        taken: (pid) => this.taken.push(pid),
      },
    });
    if (opened.kind === 'held') throw new Error('no other process has its lock');
    this.spool = opened.spool;
    this.recovered = opened.recovered;
  }

  /** Advances time and lets the consequences finish as far as they can. */
  async pass(ms: number): Promise<void> {
    this.clock.advance(ms);
    await settled();
  }

  /** What a reader finds up to the spool’s position. */
  async durable(): Promise<string[]> {
    const { records } = await readAll(DIR, { disk: this.disk, until: this.spool.position });
    return records.map(short);
  }

  /** What a reader finds in a spool that no process writes. */
  async left(): Promise<string[]> {
    return (await readAll(DIR, { disk: this.disk })).records.map(short);
  }
}
