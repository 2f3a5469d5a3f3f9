/** What a key can ask about itself, by its route: usage, limits, balance. The sums are of real snapshots over a spool in memory. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { CreditLedger } from '../../../sidecar/access/credit.js';
import type { Caller } from '../../../sidecar/access/identity.js';
import { RequestLimits } from '../../../sidecar/access/limits.js';
import { QuotaLedger } from '../../../sidecar/access/quotas.js';
import { ACCOUNT, USAGE } from '../../../sidecar/api/account.js';
import { LIST_MODELS } from '../../../sidecar/api/models.js';
import type { HostedModel, Services } from '../../../sidecar/api/services.js';
import { usage } from '../../../sidecar/commands/usage.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import { validateAnswer } from '../../../sidecar/contracts/answer-schemas.js';
import type { ContractError } from '../../../sidecar/domain/errors.js';
import { costOf, NO_TOKENS, parseUsd, type TokenCounts } from '../../../sidecar/domain/money.js';
import type { Outcome, UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { rebuildBalances } from '../../../sidecar/usage/balances.js';
import type { UsageEvent } from '../../../sidecar/usage/delivery/sink.js';
import type { DurableSums } from '../../../sidecar/usage/durable-sums.js';
import { focusRows } from '../../../sidecar/usage/focus.js';
import { inputRates, PriceList } from '../../../sidecar/usage/prices.js';
import { comparePositions } from '../../../sidecar/usage/spool-format.js';
import type { TotalsRow } from '../../../sidecar/usage/totals-files.js';
import { Totals } from '../../../sidecar/usage/totals.js';
import { openHarness } from '../../support/delivering-harness.js';
import { BilledHarness } from '../../support/billed-harness.js';
import { FakeClock } from '../../support/fake-clock.js';
import { FakeEngine } from '../../support/fake-engine.js';
import { ACME } from '../../support/in-process.js';
import { rounds } from '../../support/long-form.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { exchangeWith, postHead } from '../../support/request-head.js';
import { routeServices } from '../../support/route-services.js';
import { usageRecord } from '../../support/usage-records.js';
import { UsageSink } from '../../support/usage-sink.js';

const DAY_S = 86_400;
const DAY_MS = DAY_S * 1000;
/** Midnight. */
const FIRST = Date.parse('2026-10-01T00:00:00Z');

const OWNER: Caller = { ...ACME, usage: 'account' };

interface Result {
  readonly input_tokens: number;
  readonly input_cached_tokens: number;
  readonly output_tokens: number;
  readonly num_model_requests: number;
  readonly model: string | null;
  readonly api_key_id: string | null;
  readonly service_tier: string | null;
  readonly batch: boolean | null;
  readonly cost: Readonly<Record<'value' | 'input' | 'cached_input' | 'output', string>>;
}

interface Page {
  readonly data: readonly { readonly start_time: number; readonly end_time: number; readonly results: Result[] }[];
  readonly has_more: boolean;
  readonly next_page: string | null;
}

/** The answer of a route: its body if it is one of its schema, else its error. */
async function ask(
  route: typeof USAGE,
  caller: Caller,
  own: Partial<Services>,
  query = '',
): Promise<{ readonly body?: unknown; readonly error?: ContractError }> {
  const answers: { body?: unknown; error?: ContractError }[] = [];
  const exchange = exchangeWith({
    head: Object.assign(postHead(), { method: 'GET', query }),
    reply: ({ body }) => void answers.push({ body: JSON.parse(String(body)) }),
    fail: (error) => void answers.push({ error }),
  });
  const identity = { resolve: () => Promise.resolve(caller) };
  await route.serve(exchange, routeServices(new FakeClock(), { contract: 'compatible', identity, ...own }));
  const [answer] = answers;
  if (!answer) throw new Error('there was no answer');
  const kind = route === USAGE ? 'UsagePage' : 'Account';
  if (answer.body !== undefined && route !== LIST_MODELS) t.match(validateAnswer(kind, answer.body), { ok: true });
  return answer;
}

/** All pages of GET /v1/usage from a time on. */
async function usageOf(caller: Caller, own: Partial<Services>, query: string): Promise<Page['data']> {
  const buckets: Page['data'][number][] = [];
  for (let page: string | null = ''; page !== null;) {
    const { body, error } = await ask(USAGE, caller, own, `${query}&limit=31${page === '' ? '' : `&page=${page}`}`);
    if (error) throw new Error(error.message);
    const { data, next_page: next, has_more: more } = body as Page;
    t.equal(more, next !== null);
    buckets.push(...data);
    page = next;
  }
  return buckets;
}

async function folder(t: Test): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-account-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

const RATES = { input: 150_000n, cachedInput: 75_000n, output: 600_000n };
const FLEX_RATES = { input: 50_000n, cachedInput: 20_000n, output: 100_000n };
const PRICES = new PriceList([
  {
    version: 'v1',
    effective: 0,
    decisions: inputRates(42_000n),
    chat: new Map([['m', { ...RATES, tiers: { flex: FLEX_RATES } }]]),
  },
]);

/** Totals over these records, all durable. */
async function totalsOf(t: Test, records: readonly UsageRecord[]): Promise<Totals> {
  const spool = new MemorySpool();
  for (const record of records) spool.append(record);
  spool.flush();
  return openTotals(await folder(t), spool);
}

function openTotals(
  dir: string,
  spool: MemorySpool,
  incomplete: (why: string) => void = (why) => void t.fail(why),
): Promise<Totals> {
  const damaged = (): void => void t.fail('nothing is damaged');
  const listener = { damaged, unwritten: damaged, unreadable: damaged, incomplete };
  return Totals.open({ clock: new FakeClock(), spool, dir, listener });
}

function close(id: string, at: string, tokens: TokenCounts, more: Partial<UsageRecord> = {}): UsageRecord {
  const picodollars = String(costOf(RATES, tokens));
  return usageRecord(id, 'close', { at, ...tokens, model: 'm', price: { version: 'v1', picodollars }, ...more });
}

t.test('usage by day, of one key or of the account, in groups', async (t) => {
  const tokens = { promptTokens: 100, cachedTokens: 60, completionTokens: 10 };
  const other = { keyId: 'key-2' };
  const totals = await totalsOf(t, [
    usageRecord('a', 'open', { at: '2026-10-02T23:59:59.000Z', model: 'm' }),
    close('a', '2026-10-03T00:00:00.000Z', tokens),
    close('b', '2026-10-03T23:59:59.999Z', tokens),
    close('c', '2026-10-04T00:00:00.000Z', tokens, other),
    close('d', '2026-10-04T00:00:00.000Z', tokens, {
      ...other,
      model: 'gone',
      price: { version: 'v0', picodollars: '7' },
    }),
    close('e', '2026-10-04T00:00:00.000Z', tokens, {
      outcome: 'failed',
      price: { version: 'v1', picodollars: '0' },
      tier: 'flex',
    }),
    close('f', '2026-10-04T00:00:00.000Z', tokens, { account: 'another' }),
    close('g', '2026-10-04T00:00:00.000Z', tokens, {
      account: 'another',
      tier: 'flex',
      price: { version: 'v1', picodollars: String(costOf(FLEX_RATES, tokens)) },
    }),
    close('h', '2026-10-04T00:00:00.000Z', tokens, { account: 'batches', batch: true }),
    close('i', '2026-10-04T00:00:00.000Z', tokens, { account: 'batches' }),
    // As earlier versions wrote lines of batches that have a price of their own.
    close('j', '2026-10-04T00:00:00.000Z', tokens, {
      account: 'batches',
      price: { version: 'v1/batch', picodollars: '3' },
    }),
  ]);
  const now = Date.parse('2026-10-04T12:00:00Z');
  const none = { inFlight: 0, perMinute: 0 };
  const limits = { chat: none, embeddings: none, decisions: none, models: { inFlight: 1, perMinute: 1 } };
  const keyLimits = new RequestLimits(new FakeClock(), limits);
  for (const caller of [ACME, { ...ACME, account: 'another' }])
    t.equal(keyLimits.take(caller, 'models').kind, 'taken', 'no request of a model or a list is left to the key');
  const services = {
    totals: () => totals,
    pricing: PRICES,
    date: () => new Date(now),
    keyLimits,
    draining: () => true,
    leaving: () => true,
  };
  const start = Date.parse('2026-10-02T10:00:00Z') / 1000;
  const own = await ask(USAGE, ACME, services, `start_time=${start}`);
  const each = { input_tokens: 100, input_cached_tokens: 60, output_tokens: 10 };
  const costs = (value: string, input: string, cached: string, output: string): object => ({
    ...{ value, currency: 'usd', input, cached_input: cached, output },
  });
  const cost = costs('0.0000165', '0.000006', '0.0000045', '0.000006');
  const no = { model: null, api_key_id: null, service_tier: null, batch: null };
  const two = { input_tokens: 200, input_cached_tokens: 120, output_tokens: 20, num_model_requests: 2 };
  const results = [
    [],
    [{ object: 'usage.result', ...two, ...no, cost: costs('0.000033', '0.000012', '0.000009', '0.000012') }],
    [{ object: 'usage.result', ...each, num_model_requests: 1, ...no, cost: costs('0', '0', '0', '0') }],
  ];
  t.strictSame(own.body, {
    object: 'page',
    data: results.map((of, i) => ({
      object: 'bucket',
      start_time: 1_790_899_200 + i * DAY_S,
      end_time: 1_790_985_600 + i * DAY_S,
      results: of,
    })),
    has_more: false,
    next_page: null,
    as_of: now / 1000,
  });
  const last = async (groups: string, caller = OWNER): Promise<Page['data'][number]['results'] | undefined> =>
    ((await ask(USAGE, caller, services, `start_time=${DAY_S * Math.floor(now / DAY_MS)}&${groups}`)).body as Page)
      .data[0]?.results;
  t.match(
    await last(''),
    [{ num_model_requests: 3, cost: { value: '0.000016500007', input: null, output: null } }],
    'of all keys',
  );
  t.match(await last('group_by=model&group_by[]=api_key_id'), [
    { model: 'm', api_key_id: 'key-2', ...each, cost },
    { model: 'gone', api_key_id: 'key-2', cost: { value: '0.000000000007', input: null } },
    { model: 'm', api_key_id: 'key-1', ...each, cost: { value: '0' } },
  ]);
  t.match(await last('group_by=model'), [{ model: 'm', num_model_requests: 2 }, { model: 'gone' }]);
  t.match(await last('group_by=model,service_tier'), [
    { model: 'm', service_tier: 'default', num_model_requests: 1 },
    { model: 'gone', service_tier: 'default' },
    { model: 'm', service_tier: 'flex', num_model_requests: 1 },
  ]);
  t.match(await last('group_by=api_key_id'), [{ api_key_id: 'key-2', num_model_requests: 2 }, { api_key_id: 'key-1' }]);
  t.match(
    await last('', { ...ACME, account: 'another' }),
    [
      {
        num_model_requests: 2,
        cost: { value: '0.0000207', input: '0.000008', cached_input: '0.0000057', output: '0.000007' },
      },
    ],
    'at two rates',
  );
  const batches = { ...ACME, account: 'batches' };
  t.match(await last('group_by=batch', batches), [
    { batch: true, num_model_requests: 2 },
    { batch: false, num_model_requests: 1 },
  ]);
  t.match(await last('', batches), [{ batch: null, num_model_requests: 3 }]);
});

t.test('in a fleet the sums of the other sidecars are added, or nothing is answered', async (t) => {
  const at = new Date(FIRST).toISOString();
  const of = (id: string, keyId: string): UsageRecord => usageRecord(id, 'close', { keyId, at });
  const totals = await totalsOf(t, [of('a', 'key-3'), of('b', 'key-1')]);
  const theirs = await totalsOf(t, [of('c', 'key-1'), of('d', 'key-2'), of('e', 'key-1')]);
  const day = at.slice(0, 10);
  const asked: string[][] = [];
  let known = true;
  const services = {
    totals: () => totals,
    date: () => new Date(FIRST + DAY_MS / 2),
    fleetUsage: {
      others: (...args: string[]) => {
        asked.push(args);
        return Promise.resolve(known ? new Map([[day, [...theirs.rowsOf(day, 'acme', 'keys')]]]) : undefined);
      },
    },
  };
  const start = `start_time=${FIRST / 1000}`;
  const results = async (caller: Caller, query: string): Promise<unknown> =>
    ((await ask(USAGE, caller, services, `${start}&${query}`)).body as Page).data[0]?.results;
  t.match(await results(ACME, ''), [{ num_model_requests: 3, input_tokens: 36, output_tokens: 102 }], 'of one key');
  t.match(await results(OWNER, ''), [{ num_model_requests: 5 }], 'of the account');
  t.match(await results(OWNER, 'group_by=api_key_id'), [
    { api_key_id: 'key-1', num_model_requests: 3 },
    { api_key_id: 'key-2', num_model_requests: 1 },
    { api_key_id: 'key-3', num_model_requests: 1 },
  ]);
  t.strictSame(asked[0], ['acme', '2026-10-01', '2026-10-02']);
  known = false;
  const { error } = await ask(USAGE, OWNER, services, start);
  t.match(error, { status: 503, code: 'control_plane_overloaded' });
});

t.test('pages, and what a query must be', async (t) => {
  const totals = await totalsOf(t, []);
  const services = { totals: () => totals, date: () => new Date(FIRST + DAY_MS / 2) };
  const start = FIRST / 1000;
  const page = async (query: string): Promise<Page> => (await ask(USAGE, ACME, services, query)).body as Page;
  const days = ({ data }: Page): number[] => data.map(({ start_time: at }) => (at - start) / DAY_S);
  t.strictSame(days(await page('')), [-6, -5, -4, -3, -2, -1, 0], 'the last seven days');
  t.strictSame(days(await page(`end_time=${start}&limit=31`)), [-7, -6, -5, -4, -3, -2, -1], 'not the end');
  const first = await page(`start_time=${start - 3 * DAY_S}&end_time=${start}&limit=2&bucket_width=1d`);
  t.match([days(first), first.has_more], [[-3, -2], true]);
  const second = await page(`start_time=${start - 3 * DAY_S}&end_time=${start}&limit=2&page=${first.next_page}`);
  t.match([days(second), second.has_more, second.next_page], [[-1], false, null]);
  const closes = Array.from({ length: 1002 }, (_, i) =>
    usageRecord(String(i), 'close', { keyId: `key-${i % 501}`, at: new Date(FIRST + (i % 2) * DAY_MS).toISOString() }),
  );
  const many = await totalsOf(t, closes);
  const own = { ...services, totals: () => many };
  const query = `start_time=${start}&end_time=${start + 2 * DAY_S}&group_by=api_key_id`;
  const { data, next_page: next } = (await ask(USAGE, OWNER, own, query)).body as Page;
  t.match([data.length, data[0]?.results.length, next], [1, 500, `${start}.500`], 'a page of many results');
  const rest = (await ask(USAGE, OWNER, own, `${query}&page=${next}`)).body as Page;
  const keysOf = ({ results }: Page['data'][number]): number[] =>
    results.map(({ api_key_id: id }) => Number(id?.slice('key-'.length)));
  t.strictSame([days(rest), rest.data[0] && keysOf(rest.data[0])], [[0, 1], [499]], 'the rest of the day');
  const shown = (await usageOf(OWNER, own, query)).flatMap((bucket) =>
    keysOf(bucket).map((key) => `${bucket.start_time - start} ${key}`),
  );
  t.match([shown.length, new Set(shown).size], [1002, 1002], 'each key of each day once');
  t.strictSame(
    (await page(`${query}&page=${start + DAY_S}.9`)).data,
    [{ ...data[0], start_time: start + DAY_S, end_time: start + 2 * DAY_S, results: [] }],
    'of a key with one sum',
  );
  for (const [query, param, says] of [
    ['start_time=soon', 'start_time', /whole seconds/],
    ['end_time=1.5', 'end_time', /whole seconds/],
    ['page=a', 'page', /next_page/],
    [`page=${start}.0`, 'page', /next_page/],
    [`page=${start}.1.1`, 'page', /next_page/],
    ['bucket_width=1h', 'bucket_width', /1d/],
    ['limit=32', 'limit', /1 to 31/],
    ['limit=0', 'limit', /1 to 31/],
    ['limit=1&limit=2', 'limit', /twice/],
    ['group_by=secret-name', 'group_by', /model, api_key_id, service_tier/],
    ['secret-name=1', 'query', /takes start_time/],
    [`start_time=${start}&end_time=${start}`, 'start_time', /before end_time/],
  ] as const) {
    const { error } = await ask(USAGE, ACME, services, query);
    t.match(error, { code: 'bad_request', param, message: says }, query);
    t.notMatch(error?.message, /secret-name/);
  }
  t.match(await ask(USAGE, ACME, { ...services, totals: () => undefined }), { error: { code: 'cold', status: 503 } });
});

t.test('limits are answered when they are used up, and the balance to a key that may see it', async (t) => {
  const limited = {
    ...ACME,
    limits: { chat: { perMinute: 1, inFlight: 1 } },
    tokensPerDay: 12,
    accountTokens: { tokensPerMinute: 20, tokensPerMonth: 30 },
  };
  const none = { inFlight: 0, perMinute: 0 };
  const clock = new FakeClock();
  const keyLimits = new RequestLimits(clock, {
    chat: none,
    embeddings: none,
    models: none,
    decisions: { inFlight: 32, perMinute: 0 },
  });
  const quotas = new QuotaLedger(clock, () => new Date(FIRST));
  const ledger = new CreditLedger(new Map([['acme', parseUsd('2') ?? 0n]]));
  const services = { keyLimits, quotas, credit: ledger, date: () => new Date(FIRST) };
  const taken = keyLimits.take(limited, 'chat');
  t.equal(taken.kind, 'taken');
  const reserved = quotas.reserve(limited, 12);
  t.equal(reserved.kind, 'reserved');
  if (reserved.kind === 'reserved') reserved.reservation.settle(12);
  const at = FIRST / 1000;
  const monthEnd = Date.UTC(new Date(FIRST).getUTCFullYear(), new Date(FIRST).getUTCMonth() + 1) / 1000;
  const limits = [
    { name: 'requests_in_flight', scope: 'key', routes: 'decisions', limit: 32, remaining: 32, reset_at: null },
    { name: 'requests_per_minute', scope: 'key', routes: 'chat', limit: 1, remaining: 0, reset_at: at + 60 },
    { name: 'requests_in_flight', scope: 'key', routes: 'chat', limit: 1, remaining: 0, reset_at: null },
    { name: 'tokens_per_day', scope: 'key', routes: null, limit: 12, remaining: 0, reset_at: at + DAY_S },
    { name: 'tokens_per_minute', scope: 'account', routes: null, limit: 20, remaining: 8, reset_at: at + 60 },
    { name: 'tokens_per_month', scope: 'account', routes: null, limit: 30, remaining: 18, reset_at: monthEnd },
  ];
  const account = { object: 'account', id: 'acme', api_key_id: 'key-1' };
  t.strictSame((await ask(ACCOUNT, limited, services)).body, { ...account, limits });
  const late = { ...services, date: () => new Date(FIRST + 1) };
  t.match((await ask(ACCOUNT, limited, late)).body, { limits: [{}, { reset_at: at + 61 }] }, 'no second too early');
  ledger.open(new Map([['acme', parseUsd('2.5') ?? 0n]]));
  const balance = { currency: 'usd', granted: '2', settled: '2.5', reserved: '0', available: '-0.5' };
  t.strictSame((await ask(ACCOUNT, { ...limited, usage: 'account' }, services)).body, { ...account, limits, balance });
  const credit = new CreditLedger(
    new Map([
      ['acme', parseUsd('2') ?? 0n],
      ['another', parseUsd('3') ?? 0n],
    ]),
  );
  credit.open(new Map([['acme', parseUsd('0.5') ?? 0n]]));
  t.equal(credit.reserve('acme', parseUsd('0.25') ?? 0n).kind, 'reserved');
  t.match((await ask(ACCOUNT, OWNER, { ...services, credit })).body, {
    balance: { granted: '2', settled: '0.5', reserved: '0.25', available: '1.25' },
  });
  t.match((await ask(ACCOUNT, { ...OWNER, account: 'another' }, { ...services, credit })).body, {
    balance: { granted: '3', settled: '0', reserved: '0', available: '3' },
  });
  t.strictSame(
    (await ask(ACCOUNT, { ...limited, vouched: true }, services)).body,
    { ...account, limits: [] },
    'a gateway’s',
  );
});

t.test('the context of a model is that of its longest seat, and one that sees is listed with images', async (t) => {
  const engine = new FakeEngine();
  Object.defineProperty(engine, 'contexts', { value: [100, 200] });
  const queue = new BilledHarness(0n).queue('chat');
  const model: HostedModel = {
    id: 'm',
    kind: 'chat',
    ownedBy: 'us',
    created: 0,
    engine,
    scopeOf: (account) => account,
    queue,
  };
  const { body } = await ask(LIST_MODELS, ACME, { models: new Map([['m', model]]), pricing: PRICES });
  t.match(body, { data: [{ id: 'm', context_length: 200, architecture: { input_modalities: ['text'] } }] });
  const sees = Object.assign({}, model, { vision: {} });
  const { body: seen } = await ask(LIST_MODELS, ACME, { models: new Map([['m', sees]]), pricing: PRICES });
  t.match(seen, { data: [{ architecture: { input_modalities: ['text', 'image'] } }] });
});

/** Three versions, each in force from a midnight on. */
const CHANGING = new PriceList(
  [0, 20, 40].map((day) => ({
    version: `v${day}`,
    effective: day === 0 ? 0 : FIRST + day * DAY_MS,
    decisions: inputRates(BigInt(1 + day)),
    chat: new Map(
      ['m', 'n'].map((model, i) => {
        const rates = { input: BigInt(3 + day), cachedInput: BigInt(i), output: 7n };
        return [model, { ...rates, tiers: { flex: { ...rates, output: 5n }, priority: { ...rates, input: 99n } } }];
      }),
    ),
  })),
);

const ACCOUNTS = Array.from({ length: 20 }, (_, i) => `account-${i}`);
const MODELS = [
  { id: 'm', kind: 'chat', route: 'chat' },
  { id: 'n', kind: 'chat', route: 'chat' },
  { id: 'd', kind: 'decision', route: 'decisions' },
] as const;
const OUTCOMES: readonly Outcome[] = ['done', 'done', 'done', 'cancelled', 'failed', 'refused', 'timeout'];
/** The days of one walk, fewer than are kept. */
const SPAN_DAYS = 60;

const FOCUS_NAMES = { provider: 'p', service: 's', billingAccount: 'b' };

/** Requests of many accounts and keys over some weeks, while the process is killed, and segments are deleted. */
class Walk {
  readonly spool = new MemorySpool();
  readonly #dir: string;
  readonly #random: () => number;
  #totals!: Totals;
  #balances!: DurableSums;
  #settled!: ReadonlyMap<string, bigint>;
  #running: { record: UsageRecord; price: (outcome: Outcome | undefined, tokens: TokenCounts) => bigint }[] = [];
  #ids = 0;
  now = FIRST;
  kills = 0;
  prunes = 0;

  constructor(dir: string, random: () => number) {
    this.#dir = dir;
    this.#random = random;
  }

  async start(): Promise<void> {
    this.#running = [];
    this.#totals = await openTotals(join(this.#dir, 'totals'), this.spool);
    const rebuilt = await rebuildBalances({
      clock: new FakeClock(),
      spool: this.spool,
      file: join(this.#dir, 'balances.json'),
      beginAnew: false,
      listener: { damaged: () => undefined, unwritten: () => undefined, begunAnew: () => undefined },
    });
    if (rebuilt.kind === 'lost') throw new Error(rebuilt.why);
    ({ balances: this.#balances, settled: this.#settled } = rebuilt);
  }

  async step(): Promise<void> {
    const at = this.#random();
    if (at < 0.4) this.#begin();
    else if (at < 0.55) this.#grow('progress');
    else if (at < 0.93) this.#grow('close');
    else if (at < 0.96) this.spool.flush();
    else if (at < 0.98) await this.#snapshots();
    else if (at < 0.99) this.#prune();
    else await this.#restart(this.#random() < 0.5);
  }

  /** Everything is durable; the sums start anew from it. */
  async end(): Promise<{ totals: Totals; settled: ReadonlyMap<string, bigint>; closes: readonly UsageRecord[] }> {
    await this.#restart(true);
    this.spool.flush();
    return {
      totals: this.#totals,
      settled: this.#settled,
      closes: this.spool.lines.filter(({ kind }) => kind === 'close'),
    };
  }

  #pick<T>(all: readonly T[]): T {
    return all[Math.floor(this.#random() * all.length)] as T;
  }

  #begin(): void {
    const { id: model, kind, route } = this.#pick(MODELS);
    const tier = kind === 'chat' ? this.#pick([undefined, 'flex', 'priority'] as const) : undefined;
    const { version, rates } = CHANGING.tariff({ id: model, kind, ...(tier && { tier }) }, this.now);
    const account = this.#pick(ACCOUNTS);
    const record: UsageRecord = {
      ...usageRecord(String(++this.#ids), 'open', { account, model, route, prepaid: true }),
      ...NO_TOKENS,
      at: new Date(this.now).toISOString(),
      keyId: this.#pick(['k1', 'k2', 'k3']),
      ...(tier && { tier }),
      price: { version, picodollars: '0' },
    };
    this.spool.append(record);
    // As the routes price a request: a failure that the caller has a part of costs what it has.
    const delivered = this.#random() < 0.5;
    const price = (outcome: Outcome | undefined, tokens: TokenCounts): bigint => {
      if (outcome === 'refused') return 0n;
      return (outcome === undefined || outcome === 'failed') && !delivered ? 0n : costOf(rates, tokens);
    };
    this.#running.push({ record, price });
  }

  #grow(kind: 'progress' | 'close'): void {
    const at = Math.floor(this.#random() * this.#running.length);
    const one = this.#running[at];
    if (!one) return;
    const promptTokens = one.record.promptTokens || 1 + Math.floor(this.#random() * 1000);
    const cachedTokens = one.record.cachedTokens || Math.floor(this.#random() * promptTokens);
    const completionTokens =
      one.record.route === 'chat' ? one.record.completionTokens + Math.floor(this.#random() * 500) : 0;
    const tokens = { promptTokens, cachedTokens, completionTokens };
    const outcome = kind === 'close' ? this.#pick(OUTCOMES) : undefined;
    one.record = {
      ...one.record,
      ...tokens,
      kind,
      at: new Date(this.now).toISOString(),
      price: { version: one.record.price?.version ?? '', picodollars: String(one.price(outcome, tokens)) },
      ...(outcome && { outcome }),
    };
    this.spool.append(one.record);
    if (kind === 'close') this.#running.splice(at, 1);
  }

  async #snapshots(): Promise<void> {
    // Sometimes one of the two comes before a kill, and sometimes the other.
    if (this.#random() < 0.7) await this.#totals.sums.snapshot();
    if (this.#random() < 0.7) await this.#balances.snapshot();
  }

  #prune(): void {
    const [a, b] = [this.#totals.sums.keepFrom, this.#balances.keepFrom];
    this.spool.prune(comparePositions(a, b) < 0 ? a : b);
    this.prunes += 1;
  }

  async #restart(clean: boolean): Promise<void> {
    if (clean) {
      this.spool.flush();
      await this.#totals.sums.close();
      await this.#balances.close();
    } else this.kills += 1;
    this.spool.restart();
    await this.start();
  }
}

t.test(
  'usage = export = delivered events = balances, whatever is killed and deleted, and while prices change',
  async (t) => {
    const requests = rounds({ short: 150, long: 25_000 });
    const met = { kills: 0, prunes: 0 };
    let last: readonly UsageRecord[] = [];
    await fc.assert(
      fc.asyncProperty(fc.nat(), async (seed) => {
        const walk = new Walk(await folder(t), randomFrom(seed));
        await walk.start();
        for (let step = 0; step < requests; step += 1) {
          walk.now += (SPAN_DAYS * DAY_MS) / requests;
          await walk.step();
        }
        met.kills += walk.kills;
        met.prunes += walk.prunes;
        const { totals, settled, closes } = await walk.end();
        await totals.sums.readOn();
        last = closes;
        const periods = (await Promise.all([...totals.days].map((day) => totals.byHour(day)))).flatMap((day) => [
          ...day,
        ]);
        compareHours(periods, closes);
        const services = { totals: () => totals, pricing: CHANGING, date: () => new Date(walk.now) };
        for (const account of ACCOUNTS) {
          const events = closes.filter((record) => record.account === account);
          const days = await usageOf(
            { ...OWNER, account },
            services,
            `start_time=${FIRST / 1000}&group_by=api_key_id,model,service_tier`,
          );
          for (const { start_time: day, results } of days) {
            const from = new Date(day * 1000).toISOString().slice(0, 10);
            compare(
              results,
              events.filter(({ at }) => at.startsWith(from)),
            );
          }
          const billed = events.reduce((sum, { price }) => sum + BigInt(price?.picodollars ?? 0), 0n);
          const exported = periods
            .flatMap(([period, rows]) => {
              const own = rows.filter((row) => row.account === account);
              return [...focusRows(period, own, CHANGING, FOCUS_NAMES)];
            })
            .reduce((sum, [cost]) => sum + (parseUsd(cost ?? '') ?? 0n), 0n);
          if (exported !== billed) throw new Error(`${account}: exported ${exported}, billed ${billed}`);
          const told = days
            .flatMap(({ results }) => results)
            .reduce((sum, { cost }) => sum + (parseUsd(cost.value) ?? 0n), 0n);
          if (told !== billed || (settled.get(account) ?? 0n) !== billed)
            throw new Error(`${account}: ${told}, ${billed}`);
        }
      }),
      { numRuns: rounds({ short: 4, long: 3 }) },
    );
    t.ok(met.kills > 0 && met.prunes > 0, JSON.stringify(met));
    const billed = billedBy(last.map((record) => [record.account, BigInt(record.price?.picodollars ?? 0)]));
    const { delivered, exported } = await leaving(t, last);
    t.strictSame(delivered, billed);
    t.strictSame(exported, billed);
  },
);

/** Picodollars by account, those of accounts without any left out. */
function billedBy(costs: readonly (readonly [account: string, cost: bigint])[]): Record<string, bigint> {
  const sums = new Map<string, bigint>();
  for (const [account, cost] of costs) if (cost > 0n) sums.set(account, (sums.get(account) ?? 0n) + cost);
  return Object.fromEntries([...sums].sort());
}

/** What a sink gets of these records from a spool on disk, and what the command exports of it. */
async function leaving(
  t: Test,
  closes: readonly UsageRecord[],
): Promise<Readonly<Record<'delivered' | 'exported', Record<string, bigint>>>> {
  const dir = await folder(t);
  const sink = await UsageSink.start(t);
  const events: UsageEvent[] = [];
  const all = new Promise<void>((resolve) => {
    sink.answer = ({ body, response }) => {
      events.push(...(JSON.parse(body) as UsageEvent[]));
      response.writeHead(204).end();
      if (events.length >= closes.length) resolve();
    };
  });
  const harness = await openHarness(t, dir, { RA_DELIVERY_URL: sink.url });
  for (const close of closes) harness.spool.append(close);
  const [end] = closes.slice(-1);
  if (end) await harness.spool.sync(end);
  await all;
  await harness.stop();
  let text = '';
  const out = new Writable({ write: (part, _, done) => done(void (text += String(part))) });
  const loaded = loadConfig({ RA_DATA_DIR: dir });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const err = (line: string): void => void t.fail(line);
  t.equal(await usage(loaded.config, ['export', '--format', 'focus'], { out, err }), 0);
  const [head = '', ...lines] = text.trim().split('\n');
  const [cost, account] = ['BilledCost', 'SubAccountId'].map((name) => head.split(',').indexOf(name)) as [
    number,
    number,
  ];
  // A comma within quotes is part of a cell.
  const rows = lines.map((line) => line.split(/,(?=(?:[^"]*"[^"]*")*[^"]*$)/));
  return {
    delivered: billedBy(events.map(({ data }) => [data.account, BigInt(data.price?.picodollars ?? 0)])),
    exported: billedBy(rows.map((cells) => [cells[account] ?? '', parseUsd(cells[cost] ?? '') ?? 0n])),
  };
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Each row of an hour has events of that hour, that of a day what is in no hour, and each event is in one row. Only those that a start
 * closed are late, and may be in no hour.
 */
function compareHours(
  periods: readonly (readonly [string, readonly TotalsRow[]])[],
  events: readonly UsageRecord[],
): void {
  const left = new Map<string, number>();
  const nameOf = (
    period: string,
    of: Pick<TotalsRow, 'account' | 'keyId' | 'model'>,
    tier: string,
    version = '',
  ): string => [period, of.account, of.keyId, of.model, tier, version].join();
  const add = (name: string, requests: number): void => void left.set(name, (left.get(name) ?? 0) + requests);
  for (const [period, rows] of periods)
    for (const row of rows) add(nameOf(period, row, row.tier, row.priceVersion), row.requests);
  const isLate = ({ estimated }: UsageRecord): boolean => estimated === true;
  for (const event of [...events.filter((each) => !isLate(each)), ...events.filter(isLate)]) {
    const [day = '', hour = ''] = [10, 13].map((end) =>
      nameOf(event.at.slice(0, end), event, event.tier ?? '', event.price?.version),
    );
    const isInHour = (left.get(hour) ?? 0) > 0;
    if (!isInHour && !isLate(event)) throw new Error(`a request of ${hour} is in its day alone`);
    add(isInHour ? hour : day, -1);
  }
  const wrong = [...left].filter(([, requests]) => requests !== 0);
  if (wrong.length > 0) throw new Error(`requests in no hour or in two: ${wrong.join(' ')}`);
}

/** Each group of a day has the sums of its events, and the parts of its price add up to it. */
function compare(results: readonly Result[], events: readonly UsageRecord[]): void {
  let found = 0;
  for (const { model, api_key_id: keyId, service_tier: served, cost, ...counts } of results) {
    const isOwn = (event: UsageRecord): boolean =>
      event.model === model && event.keyId === keyId && (event.tier ?? 'default') === served;
    const own = events.filter(isOwn);
    found += own.length;
    const sum = (of: (event: UsageRecord) => number): number => own.reduce((all, event) => all + of(event), 0);
    const wanted = {
      input_tokens: sum(({ promptTokens }) => promptTokens),
      input_cached_tokens: sum(({ cachedTokens }) => cachedTokens),
      output_tokens: sum(({ completionTokens }) => completionTokens),
      num_model_requests: own.length,
    };
    const parts = [cost.input, cost.cached_input, cost.output].map((text) => parseUsd(text) ?? 0n);
    const billed = own.reduce((all, { price }) => all + BigInt(price?.picodollars ?? 0), 0n);
    const same = Object.entries(wanted).every(([field, value]) => counts[field as keyof typeof counts] === value);
    if (!same || parseUsd(cost.value) !== billed || parts.reduce((a, b) => a + b) !== billed)
      throw new Error(`${model} of ${keyId}: ${JSON.stringify({ cost, counts, wanted })}, billed ${billed}`);
  }
  if (found !== events.length) throw new Error('some events are in no group');
}
