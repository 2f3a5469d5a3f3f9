/** A sidecar under load that bills several accounts to a bus, and the records of its spool. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import type { UsageEvent } from '../../sidecar/usage/delivery/sink.js';
import { makeKey } from '../support/keys.js';
import { OpenLoad } from '../support/open-load.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

const run = promisify(execFile);
const CLI = fileURLToPath(new URL('../../sidecar/cli.js', import.meta.url));

/** So few that a loaded machine answers most of them; refused requests are not billed. */
const PER_SECOND = 10;
const ACCOUNTS = ['acme', 'a.b', 'x > *', 'ünï'];

export class BilledLoad {
  readonly sidecar: Sidecar;
  readonly #load: OpenLoad<string>;
  readonly #configFile: string;

  private constructor(sidecar: Sidecar, load: OpenLoad<string>, configFile: string) {
    this.sidecar = sidecar;
    this.#load = load;
    this.#configFile = configFile;
  }

  /** Starts a sidecar with this `delivery` section and a key for each account, and loads it. It ends with the test. */
  static async start(t: Test, delivery: object): Promise<BilledLoad> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-billed-'));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const keys = ACCOUNTS.map((account) => makeKey({ account }));
    await writeFile(join(dir, 'keys.json'), JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));
    const config = {
      ...(await chatOnly(8)),
      dataDir: join(dir, 'data'),
      keys: { file: join(dir, 'keys.json') },
      // Delivered segments are kept for the comparison, and a slow disk is not part of the test.
      usage: { segmentBytes: 64 * 1024 * 1024, maxBacklogBytes: 1024 * 1024 * 1024, maxUnsyncedMs: 60_000 },
      delivery: { maxAgeMs: 50, timeoutMs: 1000, backoffMinMs: 50, backoffMaxMs: 500, ...delivery },
    };
    const configFile = join(dir, 'config.json');
    await writeFile(configFile, JSON.stringify(config));
    const sidecar = await Sidecar.start(t, { config });
    const load = new OpenLoad<string>(PER_SECOND, async (i) => {
      const key = keys[i % keys.length]?.key ?? '';
      const body = { model: 'ra-tiny-chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 1 + (i % 7) };
      const response = await sidecar.post('/chat/completions', body, { key });
      const { error } = (await response.json()) as { readonly error?: { readonly code: string } };
      return error?.code ?? 'answered';
    });
    t.teardown(() => load.end().then(() => undefined));
    return new BilledLoad(sidecar, load, configFile);
  }

  /** Resolves once so many more events were delivered. */
  async delivers(more: number): Promise<void> {
    const name = 'ra_sidecar_usage_delivered_total';
    const goal = (await this.sidecar.metric(name)) + more;
    while ((await this.sidecar.metric(name)) < goal);
  }

  /** Stops the load, ends the sidecar, and returns the outcome of each request: `answered`, or why it was refused. */
  async end(): Promise<readonly string[]> {
    const answers = await this.#load.end();
    this.sidecar.child.kill('SIGTERM');
    await this.sidecar.exited();
    return answers;
  }

  /** The closing records of the spool, by `ra-sidecar usage export`; throws unless `usage verify` succeeds. */
  async exported(): Promise<UsageRecord[]> {
    const options = { env: { ...process.env, RA_CONFIG: this.#configFile }, maxBuffer: 1 << 28 };
    await run(process.execPath, [CLI, 'usage', 'verify'], options);
    const { stdout } = await run(process.execPath, [CLI, 'usage', 'export'], options);
    return stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as UsageRecord);
  }
}

/**
 * Compares the events of a bus with the records of the spool: each record once by its id, complete, in its account's
 * order, and one for each answered request.
 */
export function sameAsSpool(
  t: Test,
  events: readonly UsageEvent[],
  closes: readonly UsageRecord[],
  answers: readonly string[],
): void {
  const answered = answers.filter((answer) => answer === 'answered').length;
  t.equal(closes.filter(({ outcome }) => outcome === 'done').length, answered);
  const refused = [...new Set(answers)].filter((answer) => answer !== 'answered');
  t.comment(
    `${answers.length} requests, ${answered} answered, the rest refused with: ${refused.join(', ') || 'nothing'}`,
  );
  t.notOk(refused.includes('spool_unhealthy'), 'a bus that is unavailable for a moment causes no refusals');
  const byId = new Map<string, UsageEvent>();
  for (const event of events) if (!byId.has(event.id)) byId.set(event.id, event);
  const first = [...byId.values()];
  t.equal(first.length, closes.length, 'as many as were billed');
  for (const account of ACCOUNTS) {
    const records = closes.filter((close) => close.account === account);
    t.ok(records.length > 5, `${account} was billed`);
    t.strictSame(
      first.filter(({ subject }) => subject === account).map(({ data }) => data),
      records,
      `${account}: the records of the spool, in their order`,
    );
  }
  const sum = (records: readonly UsageRecord[]): number =>
    records.reduce((tokens, record) => tokens + record.promptTokens + record.completionTokens, 0);
  t.equal(sum(first.map(({ data }) => data)), sum(closes), 'the sums are equal');
}
