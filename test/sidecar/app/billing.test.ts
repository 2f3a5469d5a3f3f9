import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CLOSE_MS, openBilling, type Billing, type BillingOptions } from '../../../sidecar/app/billing.js';
import { Closers } from '../../../sidecar/app/closers.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { writeSnapshot } from '../../../sidecar/usage/balances.js';
import { postedFile } from '../../../sidecar/usage/delivery/files.js';
import { BUILT_IN_PRICES } from '../../../sidecar/usage/prices.js';
import { START } from '../../../sidecar/usage/spool-format.js';
import { FakeClock } from '../../support/fake-clock.js';
import { RecordingLog } from '../../support/in-process.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { usageRecord } from '../../support/usage-records.js';

const NO_SUCH_FILE = '/nowhere/file.json';
const GRANTED = 10n ** 12n;

interface Opened extends BillingOptions {
  readonly clock: FakeClock;
  readonly log: RecordingLog;
  readonly page: () => Promise<string>;
}

/** `granted`: acme has a dollar; otherwise no credit is checked. */
async function desk(t: Test, { granted = true, environment = {} } = {}): Promise<Opened> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-billing-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const file = join(dir, 'credit.json');
  await writeFile(file, JSON.stringify({ version: 1, accounts: { acme: [{ id: 'g', usd: '1' }] } }));
  const loaded = loadConfig({ RA_DATA_DIR: dir, ...(granted && { RA_CREDIT_FILE: file }), ...environment });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const metrics = new Metrics([]);
  const page = async (): Promise<string> => (await metrics.render()).text;
  const [clock, log] = [new FakeClock(), new RecordingLog()];
  return { config: loaded.config, clock, log, metrics: metrics.credit, closers: new Closers(clock, log), page };
}

/** Prices and credit that are closed as the sidecar closes them. */
async function opened(options: BillingOptions): Promise<Billing> {
  const billing = await openBilling(options);
  options.closers.add(billing.closer);
  return billing;
}

t.test('without files there are the built-in prices and no credit', async (t) => {
  const options = await desk(t, { granted: false });
  const billing = await opened(options);
  t.equal(billing.pricing, BUILT_IN_PRICES);
  t.equal(billing.credit, undefined);
  t.equal(await billing.begin(new MemorySpool()), undefined);
  t.equal(billing.keepFrom(), undefined, 'the spool is not needed');
  await options.closers.close();
  t.equal(options.clock.pending, 0);
});

t.test('credit was in a store: it begins without it only once all is posted', async (t) => {
  const options = await desk(t, { granted: false });
  const spool = new MemorySpool();
  const price = { version: 'v', picodollars: '7' };
  const charge = (): void => {
    spool.append(usageRecord(randomUUID(), 'close', { price, prepaid: true, escrow: true }));
    spool.flush();
  };
  const folder = join(options.config.dataDir, 'usage');
  await mkdir(folder);
  charge();
  await postedFile(folder).save(spool.position);
  charge();
  const early = await opened(options);
  t.match(
    await early.begin(spool),
    /^credit: the store may not have posted all .*; run ra-sidecar credit reconcile --/,
  );
  t.strictSame(early.keepFrom(), START, 'nothing is pruned');
  // As credit reconcile leaves it.
  await postedFile(folder).save(spool.position);
  const billing = await opened(options);
  t.strictSame(billing.keepFrom(), START);
  t.equal(await billing.begin(spool), undefined);
  t.equal(billing.keepFrom(), undefined);
  spool.append(usageRecord(randomUUID(), 'close', { price, prepaid: true }));
  t.equal(await (await opened(options)).begin(spool), undefined, 'nor later');
  // A request of a run that was killed.
  spool.append(usageRecord(randomUUID(), 'progress', { price, prepaid: true, escrow: true }));
  spool.flush();
  spool.restart();
  t.match(await (await opened(options)).begin(spool), /credit reconcile/);
  await options.closers.close();
});

t.test('a file that cannot be used ends the start, and nothing is left open', async (t) => {
  for (const variable of ['RA_PRICING_FILE', 'RA_CREDIT_FILE']) {
    const options = await desk(t, { environment: { [variable]: NO_SUCH_FILE } });
    await t.rejects(openBilling(options), {
      message: /(cannot be read: ENOENT|does not exist) \(file \/nowhere\/file\.json\)$/,
    });
    t.equal(options.clock.pending, 0);
  }
});

t.test('credit opens once earlier spending is added up, and its segments are kept until then', async (t) => {
  const options = await desk(t);
  const billing = await opened(options);
  const spool = new MemorySpool();
  t.strictSame(billing.keepFrom(), { segment: 1, offset: 0 });
  t.strictSame(billing.credit?.reserve('acme', 1n), { kind: 'unavailable' });
  const begun = billing.begin(spool);
  t.strictSame(billing.credit?.reserve('acme', 1n), { kind: 'unavailable' });
  t.equal(await begun, undefined);
  t.match(billing.credit?.reserve('acme', GRANTED), { kind: 'reserved' });
  t.strictSame(billing.credit?.reserve('acme', 1n), { kind: 'insufficient' });
  t.match(await options.page(), /^ra_sidecar_credit_reservations 1$/m);
  t.match(await options.log.seen('credit is open'), { count: 0 });
  await options.closers.close();
  t.equal(options.clock.pending, 0);
});

t.test('a close does not wait longer than its bound for sums that are still computed', async (t) => {
  const options = await desk(t);
  const billing = await opened(options);
  const spool = new MemorySpool();
  // A disk that hangs.
  spool.oldest = () => new Promise<never>(() => undefined);
  void billing.begin(spool);
  const closed = options.closers.close();
  options.clock.advance(CLOSE_MS);
  await closed;
  t.ok(options.log.lines.some(({ event }) => event === 'balances not written in time'));
});

t.test('unknown balances are reported in one line, and no priced request is admitted', async (t) => {
  const options = await desk(t);
  const { dataDir } = options.config;
  await writeSnapshot(join(dataDir, 'usage', 'balances.json'), {
    position: { segment: 9, offset: 0 },
    settled: new Map(),
  });
  const billing = await opened(options);
  t.match(await billing.begin(new MemorySpool()), /^credit: .*balances\.json counts more than .*; see credit\.onLost/);
  t.strictSame(billing.credit?.reserve('acme', 1n), { kind: 'unavailable' });
  await options.closers.close();

  const unread = await desk(t);
  const broken = await opened(unread);
  const spool = new MemorySpool();
  spool.broken = true;
  t.equal(await broken.begin(spool), 'credit: the spool cannot be read or the balances cannot be written');
  t.strictSame(broken.credit?.reserve('acme', 1n), { kind: 'unavailable' });
  t.ok(unread.log.lines.some(({ event }) => event === 'balances cannot be summed up'));
  await unread.closers.close();

  const anew = await desk(t, { environment: { RA_CREDIT_ON_LOST_BALANCES: 'begin' } });
  await writeSnapshot(join(anew.config.dataDir, 'usage', 'balances.json'), {
    position: { segment: 9, offset: 0 },
    settled: new Map(),
  });
  t.equal(await (await opened(anew)).begin(new MemorySpool()), undefined);
  t.match(await anew.log.seen('balances are rebuilt'), { reason: 'counts more than the spool holds' });
  await anew.closers.close();
});

t.test('without a spool, spending is counted for as long as the process lives', async (t) => {
  const options = await desk(t);
  const billing = await opened(options);
  t.equal(await billing.begin(undefined), undefined);
  t.match(billing.credit?.reserve('acme', GRANTED), { kind: 'reserved' });
  await options.closers.close();
});
