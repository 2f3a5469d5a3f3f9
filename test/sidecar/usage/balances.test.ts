import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { CreditLedger, type Reservation } from '../../../sidecar/access/credit.js';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { readSnapshot, rebuildBalances, writeSnapshot, type BalancesOptions } from '../../../sidecar/usage/balances.js';
import type { DurableSums } from '../../../sidecar/usage/durable-sums.js';
import { FakeClock } from '../../support/fake-clock.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { rounds } from '../../support/long-form.js';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

async function snapshotFile(owner: Owner): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-balances-'));
  owner.teardown(() => rm(dir, { recursive: true, force: true }));
  return join(dir, 'balances.json');
}

function line(
  id: string,
  kind: UsageRecord['kind'],
  picodollars: bigint,
  more: Partial<UsageRecord> = {},
): UsageRecord {
  return {
    id,
    requestId: 'r',
    kind,
    at: '2026-11-01T00:00:00.000Z',
    account: 'acme',
    keyId: 'k',
    model: 'm',
    route: 'chat',
    promptTokens: 1,
    cachedTokens: 0,
    completionTokens: 1,
    price: { version: 'v', picodollars: String(picodollars) },
    prepaid: true,
    ...more,
  };
}

/** The dependencies of {@link rebuildBalances}, and its reports. */
class Keeper {
  readonly clock = new FakeClock();
  readonly spool: MemorySpool;
  readonly reported: string[] = [];
  readonly options: BalancesOptions;

  constructor(file: string, spool = new MemorySpool(), beginAnew = false) {
    this.spool = spool;
    this.options = {
      clock: this.clock,
      spool,
      file,
      snapshotMs: 1000,
      snapshotCloses: 5,
      beginAnew,
      listener: {
        damaged: (bytes) => this.reported.push(`damaged ${bytes}`),
        unwritten: () => this.reported.push('unwritten'),
        begunAnew: (why) => this.reported.push(why),
      },
    };
  }

  async rebuild(): Promise<{ balances: DurableSums; settled: ReadonlyMap<string, bigint> }> {
    const rebuilt = await rebuildBalances(this.options);
    if (rebuilt.kind === 'lost') throw new Error(rebuilt.why);
    return rebuilt;
  }

  /** Lets the next snapshot that is due by time be made. */
  async tick(): Promise<void> {
    this.clock.advance(1000);
    while (this.clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}

t.test('balances equal the sum of the closing records that were paid here', async (t) => {
  const keeper = new Keeper(await snapshotFile(t));
  const { spool } = keeper;
  spool.append(line('a', 'open', 0n));
  spool.append(line('a', 'progress', 7n));
  spool.append(line('a', 'close', 10n));
  spool.append(line('b', 'close', 5n, { account: 'other' }));
  spool.append(line('c', 'close', 2n));
  const { prepaid, ...elsewhere } = line('d', 'close', 100n);
  t.ok(prepaid);
  spool.append(elsewhere);
  spool.append(line('free', 'close', 0n, { account: 'minted' }));
  spool.flush();
  spool.append(line('e', 'close', 1000n));
  const { balances, settled } = await keeper.rebuild();
  t.strictSame(
    settled,
    new Map([
      ['acme', 12n],
      ['other', 5n],
    ]),
  );
  t.strictSame(balances.keepFrom, { segment: 1, offset: 0 }, 'nothing is written yet');
  await balances.close();
  t.strictSame(balances.keepFrom, spool.position);
  t.strictSame(await readSnapshot(keeper.options.file), { position: { segment: 1, offset: 7 }, settled });
  t.equal(keeper.clock.pending, 0);
  const earlier = new Map([...settled, ['minted', 0n]]);
  await writeSnapshot(keeper.options.file, { position: spool.position, settled: earlier });
  t.strictSame((await keeper.rebuild()).settled, settled, 'an earlier sidecar kept an account of a free request');
});

t.test('a start continues from the snapshot, and needs nothing before it', async (t) => {
  const file = await snapshotFile(t);
  const { spool, ...first } = new Keeper(file);
  for (let i = 0; i < 25; i += 1) spool.append(line(`a${i}`, 'close', 1n));
  spool.flush();
  const { balances } = await rebuildBalances(first.options).then((rebuilt) => {
    if (rebuilt.kind === 'lost') throw new Error(rebuilt.why);
    return rebuilt;
  });
  await balances.close();
  spool.append(line('late', 'close', 100n));
  spool.flush();
  spool.prune(balances.keepFrom);
  t.strictSame(await spool.oldest(), { segment: 3, offset: 0 });
  const { settled } = await new Keeper(file, spool).rebuild();
  t.strictSame(settled, new Map([['acme', 125n]]));
});

t.test('a close that recovery appended counts before it is durable, and once', async (t) => {
  const file = await snapshotFile(t);
  const spool = new MemorySpool();
  spool.append(line('a', 'open', 0n));
  spool.append(line('a', 'progress', 7n));
  spool.append(line('b', 'open', 0n));
  spool.append(line('b', 'close', 30n));
  spool.flush();
  spool.restart();
  t.strictSame((await new Keeper(file, spool).rebuild()).settled, new Map([['acme', 37n]]));
  spool.flush();
  const { settled, balances } = await new Keeper(file, spool).rebuild();
  t.strictSame(settled, new Map([['acme', 37n]]));
  await balances.close();
  spool.restart();
  t.strictSame((await new Keeper(file, spool).rebuild()).settled, new Map([['acme', 37n]]));
});

t.test('a snapshot is written in time or after so many closes, of durable records', async (t) => {
  const keeper = new Keeper(await snapshotFile(t));
  const { spool, clock, options } = keeper;
  const { balances } = await keeper.rebuild();
  await keeper.tick();
  t.equal(await readSnapshot(options.file), 'missing', 'nothing to write');
  spool.append(line('a', 'close', 1n));
  spool.flush();
  spool.append(line('b', 'close', 2n));
  await keeper.tick();
  t.match(await readSnapshot(options.file), { position: { offset: 1 }, settled: new Map([['acme', 1n]]) });
  spool.flush();
  for (let i = 0; i < 4; i += 1) balances.settled();
  t.equal(clock.pending, 1);
  balances.settled();
  while (clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
  t.match(await readSnapshot(options.file), { position: { offset: 2 }, settled: new Map([['acme', 3n]]) });
  t.strictSame(balances.keepFrom, spool.position);
  await balances.close();
  t.strictSame(await readdir(join(options.file, '..')), ['balances.json'], 'no drafts are left');
});

t.test('a failed snapshot is retried, and nothing is counted twice', async (t) => {
  const keeper = new Keeper(await snapshotFile(t));
  const { spool } = keeper;
  const { balances } = await keeper.rebuild();
  spool.append(line('a', 'close', 1n));
  spool.flush();
  spool.broken = true;
  await keeper.tick();
  t.strictSame(keeper.reported, ['unwritten']);
  t.strictSame(balances.keepFrom, { segment: 1, offset: 0 });
  spool.broken = false;
  await keeper.tick();
  t.match(await readSnapshot(keeper.options.file), { settled: new Map([['acme', 1n]]) });
  await balances.close();
});

t.test('a damaged snapshot is not used', async (t) => {
  const file = await snapshotFile(t);
  const settled = new Map([
    ['acme', 12_345n],
    ['17', 1n],
  ]);
  const position = { segment: 1, offset: 1 };
  await writeSnapshot(file, { position, settled });
  t.strictSame(await readSnapshot(file), { position, settled: new Map([...settled].reverse()) });
  const text = await readFile(file, 'utf8');
  for (const [from, to] of [
    ['12345', '12344'],
    ['"offset":1', '"offset":0'],
    ['acme', 'acne'],
    ['{', ''],
    ['"version":2', '"version":1'],
    ['"version":2', '"version":3'],
  ] as const) {
    await writeFile(file, text.replace(from, to));
    t.equal(await readSnapshot(file), 'damaged', `${from} -> ${to}`);
  }

  // The whole spool exists: it is added up again.
  const spool = new MemorySpool();
  spool.append(line('a', 'close', 3n));
  spool.flush();
  t.strictSame((await new Keeper(file, spool).rebuild()).settled, new Map([['acme', 3n]]));
});

/** Sums that count how many of them were read in one turn of the event loop. */
class WatchedSums extends Map<string, bigint> {
  taken = 0;

  override *[Symbol.iterator](): MapIterator<[string, bigint]> {
    for (const entry of this.entries()) {
      this.taken += 1;
      yield entry;
    }
  }
}

t.test('however many accounts there are, few are written in one turn of the event loop', async (t) => {
  const file = await snapshotFile(t);
  const accounts = 12_345;
  const settled = new WatchedSums(Array.from({ length: accounts }, (_, i) => [`"account" ${i}`, BigInt(i)]));
  let most = 0;
  let done = false;
  const turn = (): void => {
    most = Math.max(most, settled.taken);
    settled.taken = 0;
    if (!done) setImmediate(turn);
  };
  turn();
  const position = { segment: 1, offset: 1 };
  await writeSnapshot(file, { position, settled });
  done = true;
  t.ok(most > 0 && most <= 1000, `${most} in one turn`);
  t.strictSame(await readSnapshot(file), { position, settled: new Map(settled.entries()) });
  await writeSnapshot(file, { position, settled: new Map() });
  t.strictSame(await readSnapshot(file), { position, settled: new Map() });
});

t.test('balances that cannot be known are refused, unless they are to be reset', async (t) => {
  const file = await snapshotFile(t);
  const spool = new MemorySpool();
  for (let i = 0; i < 25; i += 1) spool.append(line(`a${i}`, 'close', 1n));
  spool.flush();
  spool.prune({ segment: 2, offset: 3 });
  for (const [what, make, why, settled] of [
    ['none', () => rm(file, { force: true }), /is missing, and the oldest segments of the spool are gone/, 15n],
    ['damaged', () => writeFile(file, '{'), /is damaged, and the oldest segments of the spool are gone/, 15n],
    [
      'too old',
      () => writeSnapshot(file, { position: { segment: 1, offset: 2 }, settled: new Map([['acme', 2n]]) }),
      /is older than the oldest segment/,
      17n,
    ],
  ] as const) {
    await make();
    t.match(await rebuildBalances(new Keeper(file, spool).options), { kind: 'lost', why }, what);
    const anew = new Keeper(file, spool, true);
    t.strictSame((await anew.rebuild()).settled, new Map([['acme', settled]]), what);
    t.match(anew.reported, [why]);
  }
  await writeSnapshot(file, { position: { segment: 2, offset: 1 }, settled: new Map([['acme', 11n]]) });
  spool.wipe();
  const why = /counts more than the spool holds/;
  t.match(await rebuildBalances(new Keeper(file, spool).options), { kind: 'lost', why });
});

t.test('a snapshot that is ahead of the spool is used as it is, and nothing is charged twice', async (t) => {
  const file = await snapshotFile(t);
  const spool = new MemorySpool();
  for (let i = 0; i < 5; i += 1) spool.append(line(`a${i}`, 'close', 1n));
  spool.append(line('b', 'open', 0n));
  spool.append(line('b', 'progress', 30n));
  spool.flush();
  // What the snapshot counts besides was lost with the spool’s end, perhaps including the close of `b`.
  await writeSnapshot(file, { position: { segment: 3, offset: 0 }, settled: new Map([['acme', 47n]]) });
  spool.restart();
  const keeper = new Keeper(file, spool, true);
  const { balances, settled } = await keeper.rebuild();
  t.strictSame(settled, new Map([['acme', 47n]]));
  t.match(keeper.reported, [/counts more than the spool holds/]);
  t.strictSame(await readSnapshot(file), { position: { segment: 1, offset: 7 }, settled }, 'written at once');
  spool.append(line('c', 'close', 2n));
  spool.flush();
  await balances.close();
  spool.restart();
  t.strictSame((await new Keeper(file, spool).rebuild()).settled, new Map([['acme', 49n]]), 'the next start continues');
});

const ACCOUNTS = ['acme', 'other'];
const STEP = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      act: fc.constant('begin' as const),
      account: fc.nat({ max: 1 }),
      worst: fc.bigInt(0n, 300n),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ act: fc.constant('progress' as const), which: fc.nat(), percent: fc.bigInt(0n, 100n) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ act: fc.constant('end' as const), which: fc.nat(), percent: fc.bigInt(0n, 100n) }),
  },
  { weight: 2, arbitrary: fc.constant({ act: 'flush' as const }) },
  { weight: 1, arbitrary: fc.constant({ act: 'snapshot' as const }) },
  {
    weight: 2,
    arbitrary: fc.record({ act: fc.constant('restart' as const), clean: fc.boolean(), damage: fc.boolean() }),
  },
);

t.test('whatever happens and whenever the process is killed, balances equal the sum of the records', async (t) => {
  const file = await snapshotFile(t);
  let restarts = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(STEP, { minLength: 20, maxLength: 60 }), async (steps) => {
      await rm(file, { force: true });
      const granted = new Map(ACCOUNTS.map((account) => [account, 1000n]));
      const spool = new MemorySpool();
      let running: { id: string; account: string; worst: bigint; reservation: Reservation }[] = [];
      let ids = 0;
      const start = async (): Promise<{ keeper: Keeper; balances: DurableSums; ledger: CreditLedger }> => {
        running = [];
        const keeper = new Keeper(file, spool);
        const { balances, settled } = await keeper.rebuild();
        const ledger = new CreditLedger(granted, () => balances.settled());
        ledger.open(settled);
        return { keeper, balances, ledger };
      };
      let life = await start();
      const holds = (): boolean =>
        ACCOUNTS.every((account) => {
          const closes = spool.lines.filter((record) => record.kind === 'close' && record.account === account);
          const billed = closes.reduce((sum, { price }) => sum + BigInt(price?.picodollars ?? 0), 0n);
          const { settled, reserved } = life.ledger.balance(account);
          return settled === billed && 1000n - settled - reserved >= 0n;
        });
      for (const step of steps) {
        if (step.act === 'begin') {
          const account = ACCOUNTS[step.account] ?? '';
          const held = life.ledger.reserve(account, step.worst);
          if (held.kind === 'reserved') {
            const id = String(++ids);
            running.push({ id, account, worst: step.worst, reservation: held.reservation });
            spool.append(line(id, 'open', 0n, { account }));
          }
        } else if (step.act === 'progress' || step.act === 'end') {
          const at = running.length === 0 ? -1 : step.which % running.length;
          const one = running[at];
          if (!one) continue;
          const price = (one.worst * step.percent) / 100n;
          if (step.act === 'end') {
            running.splice(at, 1);
            one.reservation.settle(price);
          }
          spool.append(line(one.id, step.act === 'end' ? 'close' : 'progress', price, { account: one.account }));
        } else if (step.act === 'flush') spool.flush();
        else if (step.act === 'snapshot') await life.keeper.tick();
        else {
          restarts += 1;
          if (step.clean) spool.flush();
          if (step.clean) await life.balances.close();
          if (step.damage) await writeFile(file, 'damaged');
          spool.restart();
          life = await start();
        }
        if (!holds()) return false;
      }
      await life.balances.close();
      return true;
    }),
    { numRuns: rounds({ short: 6, long: 60 }) },
  );
  t.ok(restarts > rounds({ short: 10, long: 100 }), `${restarts} restarts`);
});
