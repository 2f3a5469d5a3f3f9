import t from 'tap';
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  constants,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { START, type Position } from '../../../sidecar/usage/spool-format.js';
import type { Totals } from '../../../sidecar/usage/totals.js';
import { folder, openHarness, type DeliveringHarness } from '../../support/delivering-harness.js';
import { usageRecord } from '../../support/usage-records.js';
import { deadPort, UsageSink } from '../../support/usage-sink.js';

const SECRET = 'sink-secret-canary';

/** Resolves once the sink was sent all of `ids`. */
async function arrived(sink: UsageSink, ...ids: readonly string[]): Promise<void> {
  while (!ids.every((id) => sink.ids.flat().includes(id))) await sink.came(sink.requests.length + 1);
}

t.test('billed usage arrives, and after a restart delivery continues where it ended', async (t) => {
  const sink = await UsageSink.start(t);
  const dir = folder(t);
  writeFileSync(join(dir, 'secret'), `${SECRET}\n`);
  const environment = { RA_DELIVERY_URL: sink.url, RA_DELIVERY_SECRET_FILE: join(dir, 'secret') };
  const first = await openHarness(t, dir, environment);
  await first.bill('a', 'b');
  await arrived(sink, 'a', 'b');
  t.equal(sink.requests[0]?.headers.authorization, `Bearer ${SECRET}`);
  writeFileSync(join(dir, 'secret'), 'another');
  await first.bill('c');
  await arrived(sink, 'c');
  t.equal(sink.requests.at(-1)?.headers.authorization, 'Bearer another', 'a secret can be changed');
  await first.stop();
  t.equal(await first.metric('usage_delivered_total'), 3);
  t.equal(await first.metric('usage_delivery_retries_total'), 0);
  t.equal(await first.metric('usage_oldest_seconds'), 0);
  t.ok((await first.metric('usage_delivery_last_success_timestamp_seconds')) > 1e9);
  t.notOk(JSON.stringify(first.log.lines).includes(SECRET));

  const second = await openHarness(t, dir, environment);
  await second.bill('d');
  await arrived(sink, 'd');
  await second.stop();
  t.strictSame(sink.ids.flat(), ['a', 'b', 'c', 'd'], 'each once');
});

t.test('the one event that the sink refuses is a dead letter, and the rest arrives', async (t) => {
  const sink = await UsageSink.start(t);
  sink.answer = ({ body, response }) => {
    response.writeHead(body.includes('"bad"') ? 400 : 204).end('because of <secret reasons>');
  };
  const harness = await openHarness(t, folder(t), { RA_DELIVERY_URL: sink.url, RA_DELIVERY_MAX_AGE_MS: '60000' });
  await harness.bill('a', 'b', 'bad', 'c');
  await harness.stop();
  const taken = sink.ids.filter((batch) => !batch.includes('bad')).flat();
  t.strictSame(taken, ['a', 'b', 'c'], 'stop sends what waits, in order');
  const letters = readFileSync(join(harness.dir, 'dead-letters.jsonl'), 'utf8').trimEnd().split('\n');
  t.equal(letters.length, 1);
  t.match(JSON.parse(letters[0] ?? ''), { status: 400, event: { id: 'bad', data: { account: 'acme' } } });
  t.equal(await harness.metric('usage_dead_letters_total'), 1);
  t.match(await harness.log.seen('usage event refused'), { usageId: 'bad', status: 400 });
  t.notOk(JSON.stringify(harness.log.lines).includes('secret reasons'));
});

t.test('a stop does not wait longer than its bound for a disk that hangs', async (t) => {
  const sink = await UsageSink.start(t);
  const harness = await openHarness(t, folder(t), { RA_DELIVERY_URL: sink.url, RA_DELIVERY_STOP_MS: '50' });
  // Opening a pipe without a reader blocks, as a disk that hangs does.
  const draft = join(harness.dir, 'cursor.json.tmp');
  execFileSync('mkfifo', [draft]);
  t.teardown(() => closeSync(openSync(draft, constants.O_RDWR)));
  await harness.bill('a');
  await arrived(sink, 'a');
  await harness.stop();
  await harness.log.seen('usage delivery not stopped in time');
  t.notOk(existsSync(join(harness.dir, 'cursor.json')));
});

/** Its sums, once there are any. */
async function sumsOf({ totals }: DeliveringHarness): Promise<Totals> {
  for (;;) {
    const found = totals();
    if (found) return found;
    await new Promise(setImmediate);
  }
}

t.test('the sums of a start have the requests that the last run left open, from which quotas go on', async (t) => {
  const dir = folder(t);
  const first = await openHarness(t, dir, {});
  first.spool.append(usageRecord('killed', 'open'));
  const progress = usageRecord('killed', 'progress', { price: { version: 'v', picodollars: '7' } });
  first.spool.append(progress);
  await first.spool.sync(progress);
  await first.stop();
  const totals = await sumsOf(await openHarness(t, dir, {}));
  const { at, account, keyId, promptTokens, completionTokens } = progress;
  t.equal(totals.billedTokens(at.slice(0, 'YYYY-MM-DD'.length), account, keyId), promptTokens + completionTokens);
});

t.test('delivered segments are deleted once their requests are summed up', async (t) => {
  const sink = await UsageSink.start(t);
  const dir = folder(t);
  const environment = { RA_DELIVERY_URL: sink.url, RA_USAGE_SEGMENT_BYTES: '1024' };
  const harness = await openHarness(t, dir, environment);
  const ids = Array.from({ length: 30 }, (_, i) => `n${i}`);
  await harness.bill(...ids);
  await arrived(sink, ...ids);
  await harness.stop();
  t.ok(segments(harness.dir).length <= 2, segments(harness.dir).join());
  t.strictSame(sink.ids.flat(), ids);
  const totals = await sumsOf(await openHarness(t, dir, environment));
  const sums = [...totals.days].flatMap((day) => [...totals.accounts(day)]);
  t.match(sums, [{ account: 'acme', requests: ids.length }]);
});

t.test('without a sink segments are kept, as long as the retention is', async (t) => {
  const dir = folder(t);
  const small = { RA_USAGE_SEGMENT_BYTES: '1024' };
  const first = await openHarness(t, dir, small);
  await first.bill(...Array.from({ length: 30 }, (_, i) => `n${i}`));
  await first.stop();
  const all = segments(first.dir);
  t.ok(all.length > 10);
  t.notOk(existsSync(join(first.dir, 'cursor.json')));

  const old = new Date(Date.now() - 100 * 86_400_000);
  for (const name of all.slice(0, 3)) utimesSync(join(first.dir, name), old, old);
  const second = await openHarness(t, dir, small);
  await second.stop();
  t.strictSame(segments(second.dir).slice(0, all.length - 3), all.slice(3), 'three were older than 90 days');

  const third = await openHarness(t, dir, { ...small, RA_DELIVERY_RETENTION_BYTES: '4096' });
  await third.stop();
  const left = segments(third.dir).length;
  t.ok(left >= 2 && left <= 5, `${left} segments are left of 4096 bytes`);

  for (const name of segments(third.dir)) utimesSync(join(first.dir, name), old, old);
  const fourth = await openHarness(t, dir, { ...small, RA_DELIVERY_RETENTION_DAYS: '0' });
  await fourth.bill('z');
  await fourth.stop();
  t.ok(segments(fourth.dir).length > left, '0 days: for ever');
});

t.test('a spool that filled up while its sink failed accepts requests again once it is delivered', async (t) => {
  const dir = folder(t);
  const port = await deadPort();
  const small = { RA_USAGE_SEGMENT_BYTES: '1024', RA_USAGE_MAX_BACKLOG_BYTES: '4096' };
  const url = `http://127.0.0.1:${port}/usage`;
  const first = await openHarness(t, dir, { ...small, RA_DELIVERY_URL: url }, { probeMs: 10 });
  await first.bill(...Array.from({ length: 30 }, (_, i) => `n${i}`));
  await first.log.seen('usage spool unhealthy');
  await first.stop();

  // The sink is removed, and credit still adds up the spending.
  let keepFrom: Position | undefined = START;
  const second = await openHarness(t, dir, small, { keepFrom: () => keepFrom, probeMs: 10 });
  t.strictSame(second.spool.health, { ok: false, why: 'backlog' });
  keepFrom = undefined;
  await second.log.seen('usage spool healthy');
  await second.stop();

  // The same with a sink that has everything by now.
  const third = await openHarness(t, dir, { ...small, RA_USAGE_MAX_BACKLOG_BYTES: '65536' }, { probeMs: 10 });
  await third.bill(...Array.from({ length: 30 }, (_, i) => `m${i}`));
  await third.stop();
  const sink = await UsageSink.start(t, port);
  keepFrom = START;
  const fourth = await openHarness(
    t,
    dir,
    { ...small, RA_DELIVERY_URL: url },
    { keepFrom: () => keepFrom, probeMs: 10 },
  );
  await arrived(sink, 'm29');
  t.strictSame(fourth.spool.health, { ok: false, why: 'backlog' });
  keepFrom = undefined;
  await fourth.log.seen('usage spool healthy');
});

t.test('a start that cannot read its secret ends with a line and releases the spool', async (t) => {
  const dir = folder(t);
  const environment = { RA_DELIVERY_URL: 'http://127.0.0.1:9/', RA_DELIVERY_SECRET_FILE: join(dir, 'none') };
  await t.rejects(openHarness(t, dir, environment), { message: /^delivery\.secretFile: does not exist/ });
  const harness = await openHarness(t, dir, {});
  await harness.stop();
});

t.test('what a start finds damaged is logged', async (t) => {
  const sink = await UsageSink.start(t);
  const dir = folder(t);
  const first = await openHarness(t, dir, {});
  await first.bill('a', 'b', 'c');
  await first.stop();
  const segment = join(first.dir, segments(first.dir)[0] ?? '');
  const lines = readFileSync(segment, 'utf8').split('\n');
  const close = lines.findIndex((line) => line.includes('"close"'));
  lines[close] = (lines[close] ?? '').replace('"close"', '"cloze"');
  writeFileSync(segment, `${lines.join('\n')}{"a torn li`);
  writeFileSync(join(first.dir, 'cursor.json'), 'no cursor');
  const second = await openHarness(t, dir, { RA_DELIVERY_URL: sink.url });
  t.match(await second.log.seen('usage spool: a torn line was cut'), { bytes: 11 });
  t.match(await second.log.seen('usage spool: damage quarantined'), { reason: /^segment 1, offset \d+$/ });
  t.match(await second.log.seen('usage spool: closes are damaged, none is estimated'), { count: 1 });
  t.ok((await second.log.seen('usage cursor lost'))['reason']);
  await second.stop();
});

function segments(dir: string): string[] {
  return readdirSync(dir)
    .filter((name) => name.endsWith('.seg'))
    .sort();
}
