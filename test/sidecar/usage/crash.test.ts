import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import t from 'tap';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { verify } from '../../../sidecar/usage/reader.js';
import { systemError, type DiskCall } from '../../support/fake-disk.js';
import { DIR, SpoolHarness } from '../../support/spool-harness.js';
import { readAll, short, usageRecord } from '../../support/usage-records.js';
import { rounds } from '../../support/long-form.js';

type Step =
  | { readonly do: 'begin' }
  | { readonly do: 'progress' | 'end'; readonly which: number }
  | { readonly do: 'pass'; readonly ms: number }
  /** Lets some calls of the disk go through. */
  | { readonly do: 'turn'; readonly calls: number }
  | { readonly do: 'fail'; readonly calls: number }
  /** Of unsynced bytes this part is left, and then zeros. */
  | { readonly do: 'crash'; readonly left: number; readonly zeros: number; readonly named: boolean }
  | { readonly do: 'restart' };

const which = fc.nat(5);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('begin' as const) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('progress' as const), which }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('end' as const), which }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(1, 5, 1000) }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant('turn' as const), calls: fc.integer({ min: 1, max: 12 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('fail' as const), calls: fc.integer({ min: 1, max: 6 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('crash' as const),
      left: fc.double({ min: 0, max: 1, noNaN: true }),
      zeros: fc.double({ min: 0, max: 1, noNaN: true }),
      named: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
);

/** Calls that may fail; the others only read. */
const FAILING: ReadonlySet<DiskCall> = new Set([
  'open',
  'write',
  'sync',
  'syncDir',
  'truncate',
  'remove',
  'close',
  'free',
]);

/** Requests on a spool, and what is known of their records. */
class SpoolModel {
  readonly harness: SpoolHarness;
  readonly running: string[] = [];
  readonly appended = new Set<string>();
  readonly acknowledged = new Set<string>();
  #requests = 0;
  #life = 0;
  failures = 0;

  constructor(harness: SpoolHarness) {
    this.harness = harness;
    // Each call takes a turn of the event loop, so that a crash can come between any two.
    harness.disk.wait = () => setImmediate();
    harness.disk.fail = (call) =>
      FAILING.has(call) && this.failures > 0 && this.failures-- > 0 ? systemError('EIO') : undefined;
  }

  append(id: string, kind: UsageRecord['kind']): void {
    const tokens = this.appended.size;
    const record = usageRecord(id, kind, { completionTokens: tokens });
    this.appended.add(JSON.stringify(record));
    this.harness.spool.append(record);
    const life = this.#life;
    void this.harness.spool.sync(record).then(() => {
      if (life === this.#life && !this.harness.overdue.includes(id)) this.acknowledged.add(JSON.stringify(record));
    });
  }

  async take(step: Step): Promise<void> {
    const { harness, running } = this;
    switch (step.do) {
      case 'begin':
        running.push(`r${this.#requests++}`);
        this.append(running.at(-1) ?? '', 'open');
        return;
      case 'progress':
      case 'end': {
        const id = running[step.which % Math.max(running.length, 1)];
        if (id === undefined) return;
        if (step.do === 'end') running.splice(running.indexOf(id), 1);
        this.append(id, step.do === 'end' ? 'close' : 'progress');
        return;
      }
      case 'pass':
        harness.clock.advance(step.ms);
        return;
      case 'turn':
        for (let call = 0; call < step.calls; call++) await setImmediate();
        return;
      case 'fail':
        this.failures = step.calls;
        return;
      case 'crash':
        this.#life++;
        harness.disk.crash(
          (tail) => {
            const left = Math.floor(tail.length * step.left);
            const zeros = Math.floor((tail.length - left) * step.zeros);
            return Buffer.concat([tail.subarray(0, left), Buffer.alloc(zeros)]);
          },
          () => step.named,
        );
        await this.#start();
        return;
      case 'restart':
        this.failures = 0;
        this.#life++;
        await this.harness.spool.close();
        await this.#start();
    }
  }

  async #start(): Promise<void> {
    this.failures = 0;
    this.running.length = 0;
    this.harness.overdue.length = 0;
    await this.harness.open();
  }
}

t.test('whatever happens at any time, acknowledged records exist once, and no others', async (t) => {
  let crashes = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 80 }), async (steps) => {
      const story = new SpoolModel(await SpoolHarness.start({ segmentBytes: 1500 }));
      for (const step of steps) {
        await story.take(step);
        if (step.do === 'crash') crashes++;
      }
      await story.take({ do: 'crash', left: 0.5, zeros: 0, named: true });
      await story.take({ do: 'restart' });
      const { records, damage } = await readAll(DIR, { disk: story.harness.disk });
      const lines = records.filter(({ estimated }) => !estimated).map((record) => JSON.stringify(record));
      const found = new Set(lines);
      for (const record of story.acknowledged) if (!found.has(record)) throw new Error(`lost: ${record}`);
      for (const line of lines) if (!story.appended.has(line)) throw new Error(`invented: ${line}`);
      if (found.size !== lines.length) throw new Error(`twice: ${lines.join('\n')}`);
      if (damage.length > 0) throw new Error(`damage: ${JSON.stringify(damage)}`);
      const closes = records.filter(({ kind }) => kind === 'close').map(({ id }) => id);
      if (new Set(closes).size !== closes.length) throw new Error(`two closes: ${records.map(short).join(' ')}`);
      for (const { id } of records) if (!closes.includes(id)) throw new Error(`no close: ${id}`);
      const { findings } = await verify(DIR, false, story.harness.disk);
      if (findings.length > 0) throw new Error(`findings: ${JSON.stringify(findings)}`);
    }),
    { numRuns: Number(process.argv[2] ?? rounds({ short: 25, long: 300 })) },
  );
  t.ok(crashes > 0);
});

t.test('any one disk call fails: nothing is lost and the spool becomes healthy', async (t) => {
  let calls = Infinity;
  let failed = 0;
  for (let at = 0; at < calls; at++) {
    const harness = await SpoolHarness.start({ segmentBytes: 700 });
    let count = 0;
    harness.disk.fail = (call) => {
      if (count++ !== at) return undefined;
      failed++;
      return systemError(call === 'write' ? 'ENOSPC' : 'EIO');
    };
    for (const id of ['a', 'b', 'c']) {
      harness.spool.append(usageRecord(id, 'open'));
      await harness.pass(5);
      const close = usageRecord(id, 'close');
      harness.spool.append(close);
      const synced = harness.spool.sync(close);
      await harness.pass(1000);
      await synced;
    }
    calls = count;
    harness.disk.fail = () => undefined;
    for (let probe = 0; probe < 3; probe++) await harness.pass(1000);
    t.ok(harness.spool.health.ok, `healthy again after call ${at} failed`);
    t.strictSame(await harness.durable(), ['a:open', 'a:close', 'b:open', 'b:close', 'c:open', 'c:close']);
    await harness.spool.prune({ segment: 2, offset: 0 });
    t.equal(await harness.spool.close(), 0);
    await harness.open();
    t.match(harness.recovered, { estimated: [], quarantined: [], cutBytes: 0, ended: true });
  }
  t.ok(failed > 20, `${failed} calls`);
});
