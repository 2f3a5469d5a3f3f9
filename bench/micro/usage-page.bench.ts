/**
 * How long GET /v1/usage takes over HTTP with 92 days of 1,000 keys of one account: `node dist/bench/micro/usage-page.bench.js`, part of
 * `make bench`. The goal is a p99 below 5 ms.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Caller } from '../../sidecar/access/identity.js';
import { USAGE } from '../../sidecar/api/account.js';
import { Server } from '../../sidecar/http/server.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { MOST_DAYS, Totals } from '../../sidecar/usage/totals.js';
import { BUILT_IN_PRICES } from '../../sidecar/usage/prices.js';
import { FakeClock } from '../../test/support/fake-clock.js';
import { ACME } from '../../test/support/in-process.js';
import { MemorySpool } from '../../test/support/memory-spool.js';
import { routeServices } from '../../test/support/route-services.js';
import { usageRecord } from '../../test/support/usage-records.js';
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';

const KEYS = 1000;
const ASKED = 1000;
const WARM_UP = 200;
const GOAL_MS = 5;
const DAY_MS = 86_400_000;
const LAST = Date.parse('2026-10-03T12:00:00Z');

/** What is asked, and whether by a key that sees all of its account. */
const QUESTIONS: readonly [how: string, query: string, wholeAccount: boolean][] = [
  ['a key, 7 days', '', false],
  ['a key, 31 days', `limit=31&start_time=${(LAST - 31 * DAY_MS) / 1000}`, false],
  ['an account, 31 days by model', `limit=31&start_time=${(LAST - 31 * DAY_MS) / 1000}&group_by=model`, true],
  ['an account, by key', 'limit=31&group_by=api_key_id', true],
];

const dir = await mkdtemp(join(tmpdir(), 'ra-usage-bench-'));
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
try {
  const spool = new MemorySpool();
  const { version } = BUILT_IN_PRICES.tariff({ id: 'ra-tiny-chat', kind: 'chat' }, LAST);
  for (let day = MOST_DAYS - 1; day >= 0; day -= 1)
    for (let key = 0; key < KEYS; key += 1) {
      const at = new Date(LAST - day * DAY_MS).toISOString();
      const price = { version, picodollars: '1000000' };
      spool.append(usageRecord(`${day}-${key}`, 'close', { at, keyId: `key-${key}`, price }));
    }
  spool.flush();
  const nothing = (): void => undefined;
  const listener = { saved: nothing, damaged: nothing, unwritten: nothing, unreadable: nothing, incomplete: nothing };
  const totals = await Totals.open({ clock: new FakeClock(), spool, dir: join(dir, 'totals'), listener });
  let caller: Caller = ACME;
  const services = routeServices(new FakeClock(), {
    contract: 'compatible',
    identity: { resolve: () => Promise.resolve(caller) },
    date: () => new Date(LAST),
    pricing: BUILT_IN_PRICES,
    totals: () => totals,
  });
  const server = new Server({
    routes: { '/v1/usage': { GET: (exchange) => USAGE.serve(exchange, services) } },
    origins: [],
    clock: systemClock,
    limits: { totalBytes: 1 << 20 },
    onFault: (fault) => {
      throw fault;
    },
  });
  const { port } = await server.listen('127.0.0.1', 0);
  const ask = (query: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const asked = request({ port, host: '127.0.0.1', path: `/v1/usage?${query}`, agent }, (answer) => {
        let bytes = 0;
        answer.on('data', (data: Buffer) => (bytes += data.length));
        answer.on('end', () =>
          answer.statusCode === 200 ? resolve(bytes) : reject(new Error(String(answer.statusCode))),
        );
      });
      asked.on('error', reject);
      asked.end();
    });
  const rows: Row[] = [];
  for (const [how, query, wholeAccount] of QUESTIONS) {
    caller = { ...ACME, keyId: 'key-7', ...(wholeAccount && { usage: 'account' as const }) };
    const times: number[] = [];
    let bytes = 0;
    for (let i = 0; i < WARM_UP + ASKED; i += 1) {
      const from = performance.now();
      bytes = await ask(query);
      if (i >= WARM_UP) times.push(performance.now() - from);
    }
    const ms = (share: number): number => Number(quantile(times, share).toFixed(2));
    rows.push({
      'who asks for what': how,
      'KB of a page': Math.round(bytes / 1000),
      'p50 ms': ms(0.5),
      'p99 ms': ms(0.99),
    });
  }
  await server.close();
  const worst = Math.max(...rows.map((row) => Number(row['p99 ms'])));
  await keep('usage-page', {
    title: 'How long a page of GET /v1/usage takes',
    about: [
      `${KEYS} keys of one account, each used on ${MOST_DAYS} days: ${KEYS * MOST_DAYS} sums. ${ASKED} pages, one after another over one connection of this process, which asks and answers; the goal is a p99 below ${GOAL_MS} ms.`,
    ],
    rows,
    failed: worst >= GOAL_MS,
  });
} finally {
  agent.destroy();
  await rm(dir, { recursive: true, force: true });
}
