import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { MOST_DAYS, MOST_HOUR_ROWS, Totals, type TotalsOptions } from '../../../sidecar/usage/totals.js';
import { FakeClock } from '../../support/fake-clock.js';
import { fullCollector } from '../../support/grown-old.js';
import { LONG } from '../../support/long-form.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { usageRecord } from '../../support/usage-records.js';

/** The totals of one folder over several starts, and what they report. */
class Keeper {
  readonly dir: string;
  readonly spool = new MemorySpool();
  readonly reported: string[] = [];
  #mostRows: number | undefined;

  constructor(dir: string, mostRows?: number) {
    this.dir = dir;
    this.#mostRows = mostRows;
  }

  open(): Promise<Totals> {
    const options: TotalsOptions = {
      clock: new FakeClock(),
      spool: this.spool,
      dir: this.dir,
      ...(this.#mostRows !== undefined && { mostRows: this.#mostRows }),
      listener: {
        saved: () => this.reported.push('saved'),
        damaged: (bytes) => this.reported.push(`damaged ${bytes}`),
        unwritten: () => this.reported.push('unwritten'),
        unreadable: (file) => this.reported.push(`unreadable ${file.slice(this.dir.length + 1)}`),
        incomplete: (why) => this.reported.push(why),
      },
    };
    return Totals.open(options);
  }

  /** Makes one request of a day durable. */
  bill(day: string, more: Partial<UsageRecord> = {}): void {
    const id = String(this.spool.lines.length);
    const price = { version: 'v', picodollars: '1' };
    this.spool.append(usageRecord(id, 'close', { at: `${day}T12:00:00.000Z`, price, ...more }));
    this.spool.flush();
  }
}

async function keep(t: Test, mostRows?: number): Promise<Keeper> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-totals-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return new Keeper(dir, mostRows);
}

/** Requests by day. */
function requestsOf(totals: Totals): Record<string, number> {
  const days = [...totals.days]
    .sort()
    .map((day): [string, number] => [day, [...totals.rows(day)].reduce((sum, { requests }) => sum + requests, 0)]);
  return Object.fromEntries(days);
}

t.test('a snapshot writes the days that have changed, and a start needs no record before it', async (t) => {
  const keeper = await keep(t);
  keeper.bill('2026-10-03');
  keeper.bill('2026-10-04');
  const totals = await keeper.open();
  const files = ['2026-10-03.json', '2026-10-03T12.json', '2026-10-04.json', '2026-10-04T12.json', 'position.json'];
  t.strictSame((await readdir(keeper.dir)).sort(), files);
  t.strictSame(totals.sums.keepFrom, keeper.spool.position, 'written at once');
  const before = await readFile(join(keeper.dir, '2026-10-03.json'), 'utf8');
  keeper.bill('2026-10-04', { account: 'other' });
  await totals.sums.readOn();
  t.strictSame(
    [...totals.accounts('2026-10-04')],
    [
      {
        account: 'acme',
        requests: 1,
        used: { promptTokens: 12, cachedTokens: 0, completionTokens: 34 },
        picodollars: 1n,
      },
      {
        account: 'other',
        requests: 1,
        used: { promptTokens: 12, cachedTokens: 0, completionTokens: 34 },
        picodollars: 1n,
      },
    ],
  );
  await totals.sums.close();
  t.equal(await readFile(join(keeper.dir, '2026-10-03.json'), 'utf8'), before);
  t.strictSame((await readdir(keeper.dir)).sort(), files, 'no drafts are left');
  keeper.spool.prune(keeper.spool.position);
  t.strictSame(requestsOf(await keeper.open()), { '2026-10-03': 1, '2026-10-04': 2 });
  t.notMatch(keeper.reported, /[^saved,]/);
});

t.test('a crash between the files of a snapshot counts nothing twice', async (t) => {
  const keeper = await keep(t);
  keeper.bill('2026-10-03');
  const first = await keeper.open();
  await first.sums.close();
  const earlier = await readFile(join(keeper.dir, 'position.json'));
  keeper.bill('2026-10-03');
  keeper.bill('2026-10-04');
  await (await keeper.open()).sums.close();
  await writeFile(join(keeper.dir, 'position.json'), earlier);
  await rm(join(keeper.dir, '2026-10-04.json'));
  t.strictSame(requestsOf(await keeper.open()), { '2026-10-03': 2, '2026-10-04': 1 });
});

t.test('a day that cannot be written is in the next snapshot, and the position with it', async (t) => {
  const keeper = await keep(t);
  keeper.bill('2026-10-03');
  const totals = await keeper.open();
  const kept = totals.sums.keepFrom;
  const position = join(keeper.dir, 'position.json');
  const before = await readFile(position, 'utf8');
  const inTheWay = join(keeper.dir, '2026-10-04.json');
  await mkdir(inTheWay);
  const free = { version: 'v', picodollars: '0' };
  for (const more of [{}, { keyId: 'key-2' }, { outcome: 'refused' }, { outcome: 'failed', price: free }] as const)
    keeper.bill('2026-10-04', more);
  await totals.sums.snapshot();
  t.strictSame(keeper.reported, ['saved', 'unwritten']);
  t.strictSame(totals.sums.keepFrom, kept, 'a start still needs these records');
  t.equal(await readFile(position, 'utf8'), before);
  await rm(inTheWay, { recursive: true });
  await totals.sums.close();
  keeper.spool.prune(keeper.spool.position);
  const again = await keeper.open();
  t.strictSame(requestsOf(again), { '2026-10-03': 1, '2026-10-04': 4 });
  const { promptTokens, completionTokens } = usageRecord('', 'close');
  const each = promptTokens + completionTokens;
  t.equal(again.billedTokens('2026-10-04', 'acme', 'key-1'), each, 'without those that are free');
  t.equal(again.billedTokens('2026-10-04', 'acme'), 2 * each);
});

t.test('a damaged file is counted again, as far as the spool has its records', async (t) => {
  const keeper = await keep(t);
  for (const day of ['2026-10-03', '2026-10-04']) for (let i = 0; i < 15; i += 1) keeper.bill(day);
  await (await keeper.open()).sums.close();
  const whole = join(keeper.dir, '../', `${keeper.dir.split('/').at(-1)}-copy`);
  t.teardown(() => rm(whole, { recursive: true, force: true }));
  await cp(keeper.dir, whole, { recursive: true });
  const day = join(keeper.dir, '2026-10-03.json');
  const text = await readFile(day, 'utf8');
  for (const [from, to] of [
    ['"acme"', '"acne"'],
    ['15,', '14,'],
    ['{', ''],
    ['"day":"2026-10-03"', '"day":"2026-10-05"'],
  ] as const) {
    keeper.reported.length = 0;
    await writeFile(day, text.replace(from, to));
    const again = await keeper.open();
    t.strictSame(requestsOf(again), { '2026-10-03': 15, '2026-10-04': 15 }, `${from} -> ${to}`);
    t.match(keeper.reported, ['unreadable 2026-10-03.json']);
  }
  await writeFile(join(keeper.dir, 'position.json'), '{');
  t.strictSame(requestsOf(await keeper.open()), { '2026-10-03': 15, '2026-10-04': 15 }, 'each day has its position');

  keeper.spool.prune({ segment: 2, offset: 0 });
  await writeFile(day, '{');
  keeper.reported.length = 0;
  t.strictSame(requestsOf(await keeper.open()), { '2026-10-03': 5, '2026-10-04': 15 });
  t.match(keeper.reported, ['unreadable 2026-10-03.json', 'the oldest segments of the spool are gone']);
});

t.test('files that are ahead of the spool are used as they are', async (t) => {
  const keeper = await keep(t);
  for (let i = 0; i < 3; i += 1) keeper.bill('2026-10-03');
  await (await keeper.open()).sums.close();
  keeper.spool.wipe();
  keeper.bill('2026-10-03');
  const totals = await keeper.open();
  t.match(
    keeper.reported.filter((line) => line !== 'saved'),
    [/count more than the spool holds/],
  );
  t.strictSame(requestsOf(totals), { '2026-10-03': 3 }, 'the one in the spool may be among them');
  keeper.bill('2026-10-03');
  await totals.sums.readOn();
  t.strictSame(requestsOf(totals), { '2026-10-03': 4 });
});

t.test('days and rows are bounded', async (t) => {
  const keeper = await keep(t, 200);
  const day = (at: number): string => new Date(Date.UTC(2026, 9, 1 + at)).toISOString().slice(0, 10);
  for (let at = 0; at <= MOST_DAYS; at += 1) keeper.bill(day(at));
  const totals = await keeper.open();
  t.equal([...totals.days].length, MOST_DAYS);
  t.notOk([...totals.days].includes(day(0)), 'the oldest is dropped');
  for (let i = 0; i < 150; i += 1) keeper.bill(day(200), { keyId: `minted-${i}` });
  await totals.sums.snapshot();
  t.equal([...totals.days].length, 51, '50 days of one row are kept');
  const dayFiles = (await readdir(keeper.dir)).filter((name) => /^[\d-]+\.json$/.test(name));
  t.equal(dayFiles.length, 51);
  for (let i = 150; i < 400; i += 1) keeper.bill(day(200), { keyId: `minted-${i}`, account: `minted-${i}` });
  await totals.sums.close();
  const rows = [...totals.rows(day(200))];
  t.equal(rows.length, 201);
  t.match(rows.at(-1), { account: '', keyId: '', requests: 200 }, 'the others are told apart no more');
  t.strictSame(requestsOf(totals), { [day(200)]: 400 });
  t.strictSame(requestsOf(await keeper.open()), { [day(200)]: 400 });
});

/** Requests of each key by period, as in `2026-10-03T14 key-1: 2`. */
async function byHour(totals: Totals, day: string): Promise<string[]> {
  const periods = [...(await totals.byHour(day))];
  return periods.flatMap(([period, rows]) => rows.map(({ keyId, requests }) => `${period} ${keyId}: ${requests}`));
}

t.test('a day is exported by hour, and what is in no hour by day', async (t) => {
  const keeper = await keep(t);
  const [day, next] = ['2026-10-03', '2026-10-04'];
  const at = (hour: string, keyId = 'key-1', of = day): void =>
    keeper.bill(of, { at: `${of}T${hour}:59:59.999Z`, keyId });
  for (const hour of ['00', '13', '13']) at(hour);
  const first = await keeper.open();
  at('14');
  at('14', 'key-2');
  await first.sums.close();
  const whole = [`${day}T00 key-1: 1`, `${day}T13 key-1: 2`, `${day}T14 key-1: 1`, `${day}T14 key-2: 1`];
  t.strictSame(await byHour(first, day), whole);

  keeper.spool.prune(keeper.spool.position);
  const second = await keeper.open();
  t.strictSame(await byHour(second, day), whole, 'after a restart, from the files');
  at('14');
  at('00', 'key-1', next);
  const position = join(keeper.dir, 'position.json');
  const earlier = await readFile(position);
  await second.sums.close();
  await writeFile(position, earlier);
  const third = await keeper.open();
  const both = [...whole.slice(0, 2), `${day}T14 key-1: 2`, `${day}T14 key-2: 1`];
  t.strictSame(await byHour(third, day), both);
  t.strictSame(await byHour(third, next), [`${next}T00 key-1: 1`], 'nothing is counted twice after a crash');

  // As of a request whose process was killed long before the next start.
  at('13', 'key-2');
  await third.sums.readOn();
  t.strictSame(await byHour(third, day), [...both, `${day} key-2: 1`], 'no hour that was exported changes');
  at('13');
  at('14', 'key-3');
  await third.sums.close();
  const late = [...both, `${day}T14 key-3: 1`, `${day} key-1: 1`, `${day} key-2: 1`];
  t.strictSame(await byHour(third, day), late, 'no more than two hours are in memory');
  const fourth = await keeper.open();
  t.strictSame(await byHour(fourth, day), late);
  await writeFile(join(keeper.dir, `${next}T00.json`), '{');
  const fifth = await keeper.open();
  t.strictSame(await byHour(fifth, next), [`${next} key-1: 1`], 'of a damaged file the day has the sums');
  at('01', 'key-2', next);
  await fifth.sums.close();
  t.strictSame(await byHour(await keeper.open(), next), [`${next}T01 key-2: 1`, `${next} key-1: 1`]);
  t.notMatch(keeper.reported, /[^saved,]/, 'an hour that is lost is no fault of the sums');
});

t.test('hours stay in memory until they are in their files', async (t) => {
  const keeper = await keep(t);
  const day = '2026-10-03';
  const hours = ['10', '11', '12', '13', '14'];
  for (const hour of hours) keeper.bill(day, { at: `${day}T${hour}:00:00.000Z` });
  const whole = hours.map((hour) => `${day}T${hour} key-1: 1`);
  const totals = await keeper.open();
  t.strictSame(await byHour(totals, day), whole);
  keeper.bill(day, { at: `${day}T10:00:00.000Z` });
  keeper.bill(day, { at: `${day}T15:00:00.000Z` });
  await totals.sums.close();
  const late = [...whole, `${day}T15 key-1: 1`, `${day} key-1: 1`];
  t.strictSame(await byHour(totals, day), late);
  t.strictSame(await byHour(await keeper.open(), day), late);
});

t.test('an hour that a save has and cannot write stays in memory', async (t) => {
  const keeper = await keep(t);
  const day = '2026-10-03';
  const bill = (...hours: string[]): void => {
    for (const hour of hours) keeper.bill(day, { at: `${day}T${hour}:00:00.000Z` });
  };
  bill('10', '11');
  const totals = await keeper.open();
  bill('10');
  const inTheWay = join(keeper.dir, `${day}.json`);
  await rm(inTheWay);
  await mkdir(inTheWay);
  const saving = totals.sums.snapshot();
  await totals.sums.readOn();
  bill('12', '12');
  await totals.sums.readOn();
  t.strictSame(keeper.reported, ['saved'], 'the save still runs');
  await saving;
  t.strictSame(keeper.reported, ['saved', 'unwritten']);
  await rm(inTheWay, { recursive: true });
  await totals.sums.close();
  const whole = [`${day}T10 key-1: 2`, `${day}T11 key-1: 1`, `${day}T12 key-1: 2`];
  t.strictSame(await byHour(totals, day), whole);
  t.strictSame(await byHour(await keeper.open(), day), whole);
});

t.test('a day and an hour that have lost other requests are not taken for each other', async (t) => {
  const keeper = await keep(t);
  const day = '2026-10-03';
  const bill = (hour: string, picodollars: string): void =>
    keeper.bill(day, { at: `${day}T${hour}:00:00.000Z`, price: { version: 'v', picodollars } });
  for (let i = 0; i < 9; i += 1) keeper.bill('2026-10-02');
  bill('13', '1');
  bill('14', '5');
  await (await keeper.open()).sums.close();
  for (const name of [day, `${day}T14`]) await writeFile(join(keeper.dir, `${name}.json`), '{');
  keeper.spool.prune({ segment: 2, offset: 0 });
  const again = await (await keeper.open()).byHour(day);
  const costs = [...again].flatMap(([period, rows]) => rows.map(({ picodollars }) => `${period} ${picodollars}`));
  t.strictSame(costs, [`${day} 5`]);
});

t.test('hours of ever new keys end at their bounds, and their day has the others', async (t) => {
  const keeper = await keep(t);
  const totals = await keeper.open();
  for (let i = 0; i <= MOST_HOUR_ROWS; i += 1) keeper.bill('2026-10-03', { keyId: `minted-${i}` });
  await totals.sums.readOn();
  const told = await byHour(totals, '2026-10-03');
  t.equal(told.length, MOST_HOUR_ROWS + 1);
  t.equal(told.at(-1), `2026-10-03 minted-${MOST_HOUR_ROWS}: 1`);

  const later = (hour: string, keyId: string): void =>
    keeper.bill('2026-10-03', { keyId, at: `2026-10-03T${hour}:00:00.000Z` });
  for (let i = 0; i < MOST_HOUR_ROWS; i += 1) later('13', `minted-${i}`);
  for (const hour of ['14', '14', '15', '15']) later(hour, 'minted-0');
  await totals.sums.readOn();
  const hours = (await byHour(totals, '2026-10-03')).map((line) => line.split(' ')[0]);
  const rowsOf = (period: string): number => hours.filter((each) => each === period).length;
  t.equal(rowsOf('2026-10-03T12'), 0, 'an hour that there is no room for is dropped though it is in no file');
  t.equal(rowsOf('2026-10-03T13'), MOST_HOUR_ROWS, 'there is room for it once the other is dropped');
  t.equal(rowsOf('2026-10-03'), MOST_HOUR_ROWS + 1, 'its day has its sums');
});

t.test('the files of a day that is dropped are deleted, with those of its hours', async (t) => {
  const keeper = await keep(t);
  const day = (at: number): string => new Date(Date.UTC(2026, 9, 1 + at)).toISOString().slice(0, 10);
  keeper.bill(day(0));
  const totals = await keeper.open();
  for (let at = 1; at <= MOST_DAYS; at += 1) keeper.bill(day(at));
  await totals.sums.close();
  const files = await readdir(keeper.dir);
  t.strictSame(
    files.filter((name) => name.startsWith(day(0))),
    [],
  );
  t.equal(files.filter((name) => name.startsWith(day(MOST_DAYS))).length, 2);
});

// It takes seconds, and only a change of what is kept can break it.
t.test('a day of ever new accounts keeps what MOST_ROWS says of each', async (t) => {
  if (!LONG) return;
  const keeper = await keep(t);
  const totals = await keeper.open();
  const collect = fullCollector();
  const used = (): number => {
    keeper.spool.prune(keeper.spool.position);
    collect();
    return process.memoryUsage().heapUsed;
  };
  let accounts = 0;
  const mint = async (count: number): Promise<void> => {
    for (const end = accounts + count; accounts < end; accounts += 1) {
      keeper.bill('2026-10-03', { account: `minted-${accounts}`, keyId: `key-${accounts}` });
      if (accounts % 1000 === 999) await totals.sums.readOn();
    }
  };
  // Those of an hour have a bound of their own, and are the same for all that follow.
  await mint(MOST_HOUR_ROWS);
  const before = used();
  await mint(20_000);
  const bytes = (used() - before) / 20_000;
  t.ok(bytes < 1000, `${Math.round(bytes)} bytes`);
  t.equal([...totals.accounts('2026-10-03')].length, accounts);
});

t.test(
  'tiers, batches and versions of a price are counted apart, also from files that an earlier version wrote without them',
  async (t) => {
    const keeper = await keep(t);
    for (const tier of [undefined, 'flex', 'flex', 'priority'] as const)
      keeper.bill('2026-10-03', { ...(tier && { tier }) });
    for (const version of ['w', 'w/batch']) keeper.bill('2026-10-03', { price: { version, picodollars: '1' } });
    for (let i = 0; i < 2; i += 1) keeper.bill('2026-10-03', { batch: true });
    await (await keeper.open()).sums.close();
    const text = await readFile(join(keeper.dir, '2026-10-03.json'), 'utf8');
    t.match(text, /"1"\],/, 'a row of the default tier is as before');
    const tiersOf = (totals: Totals): unknown =>
      [...totals.rows('2026-10-03')].map((row) => [row.batch ? 'batch' : row.tier, row.priceVersion, row.requests]);
    t.strictSame(tiersOf(await keeper.open()), [
      ['', 'v', 1],
      ['flex', 'v', 2],
      ['priority', 'v', 1],
      ['', 'w', 1],
      ['batch', 'w/batch', 1],
      ['batch', 'v', 2],
    ]);
    t.notMatch(keeper.reported, /unreadable/);
  },
);
