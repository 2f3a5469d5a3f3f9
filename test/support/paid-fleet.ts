/** Sidecars in processes of their own that pay from the credit of one store, what they are asked, and what it must add up to. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Test } from 'tap';
import type { StoredKey } from '../../sidecar/access/key-file.js';
import { credit } from '../../sidecar/commands/credit.js';
import { loadConfig } from '../../sidecar/config/config.js';
import { formatUsd, parseUsd } from '../../sidecar/domain/money.js';
import { readFrom } from '../../sidecar/usage/reader.js';
import { START } from '../../sidecar/usage/spool-format.js';
import { PATIENT_QUEUE } from './config-parts.js';
import { fleetMember, type FleetMember } from './fleet-member.js';
import { makeKey } from './keys.js';
import { PATIENCE, type Listening, type Postgres } from './postgres.js';
import { eventually } from './processes.js';
import { CHAT, chatOnly } from './sidecar.js';

const LEASE_MS = 10_000;
export const TIMEOUT_MS = 250 * PATIENCE;
/** What an answer may take beyond its tokens and the times of the store, on a loaded machine, ms. */
const SLACK_MS = 2000 * PATIENCE;
/** Picodollars for a token of a reply. */
export const OUTPUT = 600_000n;

/** The store of a fleet, which changes with a failover. */
export interface PaidStore {
  server: Postgres;
  readonly database: string;
  url: string;
}

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

interface Sums {
  readonly granted: bigint;
  readonly settled: bigint;
  readonly held: bigint;
  readonly uncovered: bigint;
  readonly charges: bigint;
}

interface PaidFleetOptions {
  /** Of their data folders. */
  readonly names?: readonly string[];
  /** Further keys. */
  readonly keys?: readonly StoredKey[];
  /** A pooler before the store. */
  readonly through?: Listening;
}

/** Starts the sidecars, with data folders in `dir`, and makes a key of the account `acme`, which the functions are about. */
export async function paidFleet(
  t: Owner,
  dir: string,
  store: PaidStore,
  { names = ['a', 'b', 'c'], keys = [], through = store.server }: PaidFleetOptions = {},
) {
  const { key, stored } = makeKey({ account: 'acme' });
  writeFileSync(join(dir, 'keys.json'), JSON.stringify({ version: 1, keys: [stored, ...keys] }));
  const chat = { [CHAT]: { input: '0.6', cachedInput: '0.6', output: '0.6' } };
  const prices = [{ version: 'v', effective: '2026-01-01T00:00:00Z', decisions: '0.042', chat }];
  writeFileSync(join(dir, 'prices.json'), JSON.stringify({ version: 1, prices }));
  const config = {
    ...(await chatOnly(8, 8192)),
    contract: 'compatible',
    keys: { file: join(dir, 'keys.json') },
    pricing: { file: join(dir, 'prices.json') },
    credit: { source: 'store' },
    queue: { ...PATIENT_QUEUE, waitingPerSeat: 40 },
    store: { url: store.url, leaseMs: LEASE_MS, timeoutMs: TIMEOUT_MS },
  };
  const fleet = await Promise.all(names.map((id) => fleetMember(t, through, join(dir, id), config)));

  /** `ra-sidecar credit`. */
  async function command(...args: string[]): Promise<{ code: number; out: string; err: string }> {
    const loaded = loadConfig({ RA_STORE_URL: store.url, RA_STORE_LEASE_MS: `${LEASE_MS}` });
    if (loaded.kind === 'invalid') throw new Error(loaded.line);
    const texts = { out: '', err: '' };
    const code = await credit(loaded.config, args, {
      out: (text) => (texts.out += text),
      err: (text) => (texts.err += text),
    });
    return { code, ...texts };
  }

  let grants = 0;

  /** Leaves the account with so much that can be drawn, while nothing runs about so much. */
  async function leave(picodollars: bigint): Promise<void> {
    const { granted, settled, held } = await sums();
    grants += 1;
    picodollars -= granted - settled - held;
    const args = [`--usd=${formatUsd(picodollars)}`, '--id', `g${grants}`];
    if ((await command('grant', 'acme', ...args)).code !== 0) throw new Error('not granted');
  }

  async function sums(of: Postgres = store.server): Promise<Sums> {
    const { rows } = await of.sql(
      `select granted, settled, held, uncovered,
         (select coalesce(sum(amount), 0) from ra_sidecar.charge c where c.account = a.name) as charges
       from ra_sidecar.account a where name = 'acme'`,
      store.database,
    );
    const none = { granted: 0, settled: 0, held: 0, uncovered: 0, charges: 0 };
    const all = Object.entries(rows[0] ?? none).map(([name, sum]) => [name, BigInt(String(sum))]);
    return Object.fromEntries(all) as never;
  }

  /** The prices of all its closes in all spools; each request has one. */
  async function closed(t: Test): Promise<bigint> {
    const seen = new Map<string, bigint>();
    for (const { dataDir } of fleet) {
      for await (const read of readFrom(join(dataDir, 'usage'), START)) {
        if (read.kind !== 'record' || read.record.kind !== 'close') continue;
        const { id, account, price, escrow } = read.record;
        if (seen.has(id)) t.fail('two closes of one request');
        if (escrow === true && account === 'acme') seen.set(id, BigInt(price?.picodollars ?? 0));
      }
    }
    return [...seen.values()].reduce((sum, one) => sum + one, 0n);
  }

  /** The price of all that the key has used, as a sidecar tells a caller; undefined: it does not know now. */
  async function used({ sidecar }: FleetMember): Promise<bigint | undefined> {
    const answer = await fetch(`${sidecar.base}/usage`, { headers: { authorization: `Bearer ${key}` } });
    const { data = [] } = (await answer.json()) as { data?: { results: { cost: { value: string } }[] }[] };
    const values = data.flatMap(({ results }) => results.map(({ cost }) => parseUsd(cost.value) ?? 0n));
    return answer.status === 200 ? values.reduce((sum, value) => sum + value, 0n) : undefined;
  }

  function ask({ sidecar }: FleetMember, tokens: number, signal?: AbortSignal): Promise<Response> {
    const body = {
      model: CHAT,
      messages: [{ role: 'user', content: 'x' }],
      max_tokens: tokens,
      stream: signal !== undefined,
    };
    return sidecar.post('/chat/completions', body, { key, ...(signal && { signal }) });
  }

  /** The status of a whole reply; 0: the sidecar was killed. */
  async function status(of: FleetMember, tokens: number): Promise<number> {
    try {
      const answer = await ask(of, tokens);
      await answer.arrayBuffer();
      return answer.status;
    } catch {
      return 0;
    }
  }

  /** Those that were stopped, which answer late. */
  const stopped = new Set<FleetMember>();

  /** Requests at each sidecar, one after the other, with some costs. */
  function begin(t: Test): { readonly statuses: ReadonlyMap<number, number>; readonly end: () => Promise<void> } {
    const statuses = new Map<number, number>();
    let longest = 0;
    let over = false;
    const load = async (of: FleetMember): Promise<void> => {
      for (let i = 0; !over; i += 1) {
        const tokens = 1 + ((i * 7) % 23);
        const from = performance.now();
        const seen = await status(of, tokens);
        if (!stopped.has(of)) longest = Math.max(longest, performance.now() - from - tokens * 20);
        statuses.set(seen, (statuses.get(seen) ?? 0) + 1);
        if (seen !== 200) await wait(20);
      }
    };
    t.teardown(() => {
      over = true;
    });
    const loads = fleet.map(load);
    return {
      statuses,
      // What was charged is what was closed, and no more than was granted.
      end: async () => {
        over = true;
        await Promise.all(loads);
        await settled(t);
        const { granted, settled: sum, charges, uncovered } = await sums();
        t.equal(sum, charges);
        t.ok(sum <= granted, `${sum} of ${granted}`);
        t.equal(uncovered, 0n);
        t.strictSame(
          [...statuses.keys()].filter((one) => ![0, 200, 402, 503].includes(one)),
          [],
        );
        t.ok(longest < 2 * TIMEOUT_MS + SLACK_MS, `the longest took ${Math.round(longest)} ms`);
      },
    };
  }

  async function settled(t: Test): Promise<void> {
    await eventually('all is posted, and nothing is held', async () => {
      const { settled: sum, held } = await sums();
      return held === 0n && sum === (await closed(t));
    });
  }

  return { fleet, key, command, leave, sums, closed, used, ask, status, stopped, begin, settled };
}
