/**
 * What a key can ask about itself: GET /v1/usage, what it has used by day, and GET /v1/account, its limits. A key with the entitlement
 * `usage: account` sees the usage of all keys of its account, and the account's balance. Both are answered when limits are used up and
 * while no work is taken, and count against no limit.
 */
import type { Caller } from '../access/identity.js';
import { LIMIT_GROUPS } from '../access/limits.js';
import type { QuotaLeft, QuotaScope } from '../access/quotas.js';
import type { ContractError } from '../domain/errors.js';
import type { LimitLeft } from '../domain/limit-left.js';
import { addCosts, formatUsd, type Costs } from '../domain/money.js';
import type { Exchange } from '../http/exchange.js';
import { costsOfRow } from '../usage/focus.js';
import type { TotalsRow } from '../usage/totals-files.js';
import { addRows, withoutKey, type Totals } from '../usage/totals.js';
import { identify } from './preflight.js';
import * as refusals from './refusals.js';
import { failed, RequestContext, type Stop } from './request-context.js';
import { ANY_ERRORS, KEY_ERRORS, type PlainRoute } from './route.js';
import type { Services } from './services.js';

export const USAGE: PlainRoute = {
  serve: (exchange, services) => serve(exchange, services, 'usage', usageText),
  reference: {
    compatibleOnly: true,
    path: '/v1/usage',
    method: 'get',
    id: 'showUsage',
    tag: 'service',
    summary: 'What the key has used, by day',
    description:
      'Under `contract: compatible`. The sums of the durable usage records of the key, or with the entitlement `usage: account` of all keys of ' +
      'its account, for the last 92 days. Query: `start_time` and `end_time` (Unix time in seconds, widened to whole UTC days; by default the last 7 ' +
      'days), `bucket_width` (`1d`), `group_by` (`model`, `api_key_id`, `service_tier`, `batch`; several, or separated by commas), `limit` (1 to 31 days of a ' +
      'page, by default 7; a page ends after 500 results, perhaps within a day), `page` (the `next_page` of the page before).',
    key: true,
    answer: 'UsagePage',
    errors: [...ANY_ERRORS, ...KEY_ERRORS, 'cold'],
  },
};

export const ACCOUNT: PlainRoute = {
  serve: (exchange, services) => serve(exchange, services, 'account', accountText),
  reference: {
    compatibleOnly: true,
    path: '/v1/account',
    method: 'get',
    id: 'showAccount',
    tag: 'service',
    summary: 'The limits of the key, and what is left of them',
    description: 'Under `contract: compatible`. The key’s limits and quotas; with `usage: account` also the balance.',
    key: true,
    answer: 'Account',
    errors: [...ANY_ERRORS, ...KEY_ERRORS],
  },
};

/** The body of an answer, or why there is none. */
type Answered = string | Stop;

async function serve(
  exchange: Exchange,
  services: Services,
  name: string,
  answer: (caller: Caller, services: Services, query: string) => Answered | Promise<Answered>,
): Promise<void> {
  const context = new RequestContext(exchange, { name, takesApiKey: true }, services);
  try {
    const caller = await identify(context, services);
    const answered = caller.kind === 'caller' ? await answer(caller, services, exchange.head.query) : caller;
    if (typeof answered !== 'string') context.stop(answered);
    else context.reply({ status: 200, headers: { 'Cache-Control': 'no-store' }, body: answered });
  } finally {
    context.close();
  }
}

const DAY_S = 86_400;
/** Days of a page. */
const DEFAULT_DAYS = 7;
const MOST_DAYS_OF_A_PAGE = 31;
/** A page ends with the key that has the last of them, since more would hold up the event loop for milliseconds. */
const MOST_RESULTS = 500;

const GROUPS = ['model', 'api_key_id', 'service_tier', 'batch'] as const;
type Group = (typeof GROUPS)[number];

interface UsageQuery {
  /** Days since 1970, the last one not included. */
  readonly from: number;
  readonly to: number;
  readonly days: number;
  /** Keys of the first day that are on earlier pages. A day's keys keep their order: a new one is the last. */
  readonly keys: number;
  readonly groups: ReadonlySet<Group>;
}

async function usageText(caller: Caller, services: Services, query: string): Promise<Answered> {
  const { pricing, date, fleetUsage } = services;
  const totals = services.totals?.();
  const now = Math.floor(date().getTime() / 1000);
  const asked = parseQuery(query, now);
  if ('status' in asked) return failed(asked);
  if (!totals) return failed(refusals.usageUnknown());
  await totals.sums.readOn();
  const end = Math.min(asked.to, asked.from + asked.days);
  const others = fleetUsage ? await fleetUsage.others(caller.account, nameOf(asked.from), nameOf(end)) : NONE;
  if (!others) return failed(refusals.sumsUnknown());
  const data: object[] = [];
  let day = asked.from;
  let { keys } = asked;
  for (let left = MOST_RESULTS; day < end && left > 0;) {
    const rows = rowsOf(totals, caller, asked.groups, nameOf(day), others);
    const page = resultsOf(rows, asked.groups, pricing, keys, left);
    left -= page.results.length;
    data.push({ object: 'bucket', start_time: day * DAY_S, end_time: (day + 1) * DAY_S, results: page.results });
    keys = page.next;
    if (keys === 0) day += 1;
  }
  const more = day < asked.to;
  const next = more ? `${day * DAY_S}${keys === 0 ? '' : `.${keys}`}` : null;
  return JSON.stringify({ object: 'page', data, has_more: more, next_page: next, as_of: now });
}

const NONE: ReadonlyMap<string, readonly TotalsRow[]> = new Map();

/** The name of a day, as in `2026-10-03`. */
function nameOf(day: number): string {
  return new Date(day * DAY_S * 1000).toISOString().slice(0, 10);
}

/** Those of one key together. */
function rowsOf(
  totals: Totals,
  { account, keyId, usage }: Caller,
  groups: UsageQuery['groups'],
  day: string,
  others: typeof NONE,
): Iterable<TotalsRow> {
  const theirs = others.get(day) ?? [];
  if (usage !== 'account')
    return [...totals.rowsOfKey(day, account, keyId), ...theirs.filter((row) => row.keyId === keyId)];
  if (!groups.has('api_key_id')) return [...totals.rowsOf(day, account, 'all'), ...theirs.map(withoutKey)];
  const own = totals.rowsOf(day, account, 'keys');
  return others === NONE
    ? own
    : [...own, ...theirs].sort((a, b) => (a.keyId < b.keyId ? -1 : Number(a.keyId > b.keyId)));
}

interface Sum {
  readonly row: TotalsRow;
  /** Undefined if the rates of some requests are not known any more. */
  readonly costs: Costs | undefined;
}

/** The results of a day from the keys after `skip` ones on, at most `most` and those of one key. */
function resultsOf(
  rows: Iterable<TotalsRow>,
  groups: UsageQuery['groups'],
  pricing: Services['pricing'],
  skip: number,
  most: number,
): { readonly results: readonly object[]; readonly next: number } {
  const sums = new Map<string, Sum>();
  let keyId: string | undefined;
  let keys = 0;
  let next = 0;
  for (const row of rows) {
    if (row.keyId !== keyId) {
      next = sums.size >= most ? keys : 0;
      if (next > 0) break;
      ({ keyId } = row);
      keys += 1;
    }
    if (keys <= skip) continue;
    const id = JSON.stringify([
      groups.has('model') && row.model,
      groups.has('api_key_id') && row.keyId,
      groups.has('service_tier') && row.tier,
      groups.has('batch') && row.batch,
    ]);
    const costs = costsOfRow(row, pricing);
    const sum = sums.get(id);
    sums.set(
      id,
      sum ? { row: addRows(sum.row, row), costs: sum.costs && costs && addCosts(sum.costs, costs) } : { row, costs },
    );
  }
  const results = Array.from(sums.values(), ({ row, costs }) => ({
    object: 'usage.result',
    input_tokens: row.used.promptTokens,
    input_cached_tokens: row.used.cachedTokens,
    output_tokens: row.used.completionTokens,
    num_model_requests: row.requests,
    model: groups.has('model') ? row.model : null,
    api_key_id: groups.has('api_key_id') ? row.keyId : null,
    service_tier: groups.has('service_tier') ? row.tier || 'default' : null,
    batch: groups.has('batch') ? row.batch : null,
    cost: {
      value: formatUsd(row.picodollars),
      currency: 'usd',
      input: costs ? formatUsd(costs.input) : null,
      cached_input: costs ? formatUsd(costs.cachedInput) : null,
      output: costs ? formatUsd(costs.output) : null,
    },
  }));
  return { results, next };
}

const SECONDS = /^(?:0|[1-9]\d{0,10})$/;
/** Of the day, and the keys of the day that are on earlier pages. */
const PAGE = /^(?:0|[1-9]\d{0,10})(?:\.[1-9]\d{0,6})?$/;

/** `now`: Unix time in seconds. */
function parseQuery(text: string, now: number): UsageQuery | ContractError {
  const refused = refusals.badQuery;
  const values = new Map<string, string>();
  const groups = new Set<Group>();
  for (const [name, value] of new URLSearchParams(text)) {
    const field = name.endsWith('[]') ? name.slice(0, -2) : name;
    if (field === 'group_by') {
      for (const group of value.split(',')) {
        const found = GROUPS.find((each) => each === group);
        if (found === undefined) return refused('group_by', `must be of ${GROUPS.join(', ')}`);
        groups.add(found);
      }
    } else if (!PARAMETERS.has(field)) return refused('query', `takes ${[...PARAMETERS, 'group_by'].join(', ')} only`);
    else if (values.has(field)) return refused(field, 'must not be given twice');
    else values.set(field, value);
  }
  for (const name of ['start_time', 'end_time'])
    if (!SECONDS.test(values.get(name) ?? '0')) return refused(name, 'must be Unix time in whole seconds');
  if (!PAGE.test(values.get('page') ?? '0')) return refused('page', 'must be the next_page of an answer');
  if ((values.get('bucket_width') ?? '1d') !== '1d') return refused('bucket_width', 'must be 1d');
  const days = Number(values.get('limit') ?? DEFAULT_DAYS);
  if (!(Number.isInteger(days) && days >= 1 && days <= MOST_DAYS_OF_A_PAGE))
    return refused('limit', `must be 1 to ${MOST_DAYS_OF_A_PAGE}`);
  const to = Math.ceil(Number(values.get('end_time') ?? now + 1) / DAY_S);
  const [start, keys = '0'] = (values.get('page') ?? values.get('start_time'))?.split('.') ?? [];
  const from = start === undefined ? to - DEFAULT_DAYS : Math.floor(Number(start) / DAY_S);
  if (from >= to) return refused('start_time', 'must be before end_time');
  return { from, to, days, keys: Number(keys), groups };
}

const PARAMETERS: ReadonlySet<string> = new Set(['start_time', 'end_time', 'bucket_width', 'limit', 'page']);

async function accountText(caller: Caller, services: Services): Promise<string> {
  const { account, keyId } = caller;
  const balance = await balanceOf(caller, services);
  return JSON.stringify({
    object: 'account',
    id: account,
    api_key_id: keyId,
    limits: limitsOf(caller, services),
    ...(balance && { balance }),
  });
}

const QUOTA_NAMES: Record<QuotaLeft['name'], string> = {
  tokensPerMinute: 'tokens_per_minute',
  tokensPerDay: 'tokens_per_day',
  tokensPerMonth: 'tokens_per_month',
};

/** A gateway has limits of its own for its callers. */
function limitsOf(caller: Caller, { keyLimits, quotas, date }: Services): object[] {
  if (caller.vouched) return [];
  const now = date().getTime();
  const limits: object[] = [];
  const add = (
    name: string,
    routes: string | null,
    { limit, remaining, resetMs }: Omit<LimitLeft, 'resetMs'> & Partial<LimitLeft>,
    scope: QuotaScope = 'key',
  ): void => {
    const resetAt = resetMs === undefined ? null : Math.ceil((now + resetMs) / 1000);
    limits.push({ name, scope, routes, limit, remaining, reset_at: resetAt });
  };
  for (const group of LIMIT_GROUPS) {
    const minute = keyLimits.remaining(caller, group);
    const inFlight = keyLimits.inFlightLeft(caller, group);
    if (minute) add('requests_per_minute', group, minute);
    if (inFlight) add('requests_in_flight', group, inFlight);
  }
  for (const left of quotas.left(caller)) add(QUOTA_NAMES[left.name], null, left, left.scope);
  return limits;
}

async function balanceOf({ account, usage }: Caller, { credit }: Services): Promise<object | undefined> {
  if (usage !== 'account' || credit?.known !== true) return undefined;
  const balance = (await credit.balances([account])).get(account);
  if (!balance) return undefined;
  const { granted, settled, reserved, ageMs } = balance;
  return {
    currency: 'usd',
    granted: formatUsd(granted),
    settled: formatUsd(settled),
    reserved: formatUsd(reserved),
    available: formatUsd(granted - settled - reserved),
    ...(ageMs !== undefined && { age_ms: ageMs }),
  };
}
