/**
 * Prepaid credit over several processes of a sidecar: killed while streaming, started again, stopped, started again.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { formatUsd } from '../../sidecar/domain/money.js';
import { readSnapshot, writeSnapshot } from '../../sidecar/usage/balances.js';
import { readFrom } from '../../sidecar/usage/reader.js';
import { START } from '../../sidecar/usage/spool-format.js';
import { OpenStream, SHORT } from '../support/open-stream.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

/** The development key’s account. */
const ACCOUNT = 'development';
/** Picodollars a token. */
const [INPUT, OUTPUT] = [150_000n, 600_000n];

/** One data folder and the files that its sidecars read. */
class DataFolder {
  readonly #dir: string;

  private constructor(dir: string) {
    this.#dir = dir;
  }

  static async make(t: Test): Promise<DataFolder> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-balances-'));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const house = new DataFolder(dir);
    const chat = { [CHAT]: { input: '0.15', cachedInput: '0.15', output: '0.6' } };
    const prices = [{ version: 'v', effective: '2026-01-01T00:00:00Z', decisions: '0.042', chat }];
    await writeFile(house.path('prices.json'), JSON.stringify({ version: 1, prices }));
    return house;
  }

  path(name: string): string {
    return join(this.#dir, name);
  }

  /** A sidecar whose only account was granted so much in all. */
  async start(t: Test, granted: bigint): Promise<Sidecar> {
    const accounts = { [ACCOUNT]: [{ id: 'g', usd: formatUsd(granted) }] };
    await writeFile(this.path('credit.json'), JSON.stringify({ version: 1, accounts }));
    const config = {
      dataDir: this.path('data'),
      pricing: { file: this.path('prices.json') },
      credit: { file: this.path('credit.json'), pollMs: 100 },
      ...(await chatOnly(2, 32_768)),
    };
    return Sidecar.start(t, { stub: true, config });
  }

  /** Every record in the spool. */
  async records(): Promise<UsageRecord[]> {
    const records: UsageRecord[] = [];
    for await (const read of readFrom(this.path('data/usage'), START)) {
      if (read.kind === 'record') records.push(read.record);
    }
    return records;
  }

  /** The sum of all closing records. */
  async billed(): Promise<bigint> {
    const closes = (await this.records()).filter(({ kind }) => kind === 'close');
    return closes.reduce((sum, { price }) => sum + BigInt(price?.picodollars ?? 0), 0n);
  }

  /** The snapshot’s sum. */
  async settled(): Promise<bigint | undefined> {
    const snapshot = await readSnapshot(this.path('data/usage/balances.json'));
    return typeof snapshot === 'string' ? undefined : snapshot.settled.get(ACCOUNT);
  }
}

async function stop(sidecar: Sidecar): Promise<void> {
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
}

t.test(
  'a killed sidecar bills its streams up to the last progress record, and balances equal the sum of the records',
  async (t) => {
    const house = await DataFolder.make(t);
    const granted = 10n ** 12n;

    const killed = await house.start(t, granted);
    const served = await killed.chat(SHORT);
    t.equal(served.status, 200);
    const { usage } = (await served.json()) as { usage: { prompt_tokens: number; completion_tokens: number } };
    const first = BigInt(usage.prompt_tokens) * INPUT + BigInt(usage.completion_tokens) * OUTPUT;
    const stream = await OpenStream.begin(killed);
    await killed.reaches('ra_sidecar_usage_records_total', (records) => records > 0, { kind: 'progress' });
    // A record that was counted is durable a moment later.
    await killed.reaches('ra_sidecar_spool_unsynced_records', 0);
    killed.child.kill('SIGKILL');
    await killed.exited();
    await t.rejects(stream.response, 'the stream was cut');
    t.equal(await house.billed(), first, 'the stream has not ended');

    const begun = (await house.records()).findLast(({ kind }) => kind === 'progress');
    const cut = BigInt(begun?.price?.picodollars ?? 0);
    t.ok(cut >= 256n * OUTPUT, 'the amount is large');

    // The killed process's spending counts: the highest price of a short reply is not left, to the last picodollar.
    const second = await house.start(t, first + cut + first - 1n);
    const refused = await second.chat(SHORT);
    t.equal(refused.status, 402);
    await refused.text();
    const topped = { [ACCOUNT]: [{ id: 'g', usd: formatUsd(first + cut + first) }] };
    await writeFile(house.path('credit.json'), JSON.stringify({ version: 1, accounts: topped }));
    await second.logged('credit file read again');
    t.equal((await second.chat(SHORT)).status, 200, 'a top-up takes effect without a restart');
    await stop(second);
    const estimated = (await house.records()).filter((record) => record.estimated);
    t.equal(estimated.length, 1);
    t.match(estimated[0], { kind: 'close', id: begun?.id, price: begun?.price, account: ACCOUNT, prepaid: true });
    const spent = await house.billed();
    t.equal(spent, first + cut + first);
    t.equal(await house.settled(), spent, 'the snapshot of a drain includes everything');

    // A lost snapshot is made again from the whole spool.
    await writeFile(house.path('data/usage/balances.json'), 'damaged');
    const third = await house.start(t, spent);
    t.equal((await third.chat(SHORT)).status, 402);
    await stop(third);
    t.equal(await house.settled(), spent);
    t.match(JSON.parse(await readFile(house.path('data/usage/balances.json'), 'utf8')), { version: 2 });
  },
);

t.test('a sidecar that cannot know its balances reports that and does not start', async (t) => {
  const house = await DataFolder.make(t);
  // As if its segments were removed.
  const position = { segment: 9, offset: 0 };
  await writeSnapshot(house.path('data/usage/balances.json'), { position, settled: new Map([[ACCOUNT, 1n]]) });
  await t.rejects(house.start(t, 10n ** 12n), { message: /credit: .*balances\.json counts more than the spool holds/ });
});
