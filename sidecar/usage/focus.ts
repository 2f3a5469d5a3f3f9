/** Usage in columns of FOCUS 1.2 (FinOps): a row for each hour, key, model, tier, version and kind of tokens, with exact costs. */
import { costsOf, formatUsd, type Costs, type Rates } from '../domain/money.js';
import type { PriceList } from './prices.js';
import { isHour, type TotalsRow } from './totals-files.js';

/** What an operator chooses. */
export interface FocusNames {
  /** Who sells: provider, publisher and issuer of invoices. */
  readonly provider: string;
  /** What is sold. */
  readonly service: string;
  readonly billingAccount: string;
}

/** One kind of tokens of a row. */
interface Meter {
  readonly name: string;
  readonly details: Readonly<Record<string, string>>;
  /** Tokens that engines worked on, and of these the charged ones. */
  readonly used: number;
  readonly billed: number;
  readonly picodollars: bigint;
  /** Picodollars a token; undefined if it is not known any more. */
  readonly rate: bigint | undefined;
}

const INPUT = { x_TokenDirection: 'Input' };

/** What the cells of a line are made from: a kind of tokens of a row, of a time from `from` to `to`, epoch ms. */
interface Line extends FocusNames {
  readonly row: TotalsRow;
  readonly meter: Meter;
  readonly from: number;
  readonly to: number;
}

type Cell = (line: Line) => string | null;

const always =
  (text: string | null): Cell =>
  () =>
    text;
const account: Cell = ({ row }) => row.account;
const billingAccount: Cell = (line) => line.billingAccount;
const provider: Cell = (line) => line.provider;
const cost: Cell = ({ meter }) => formatUsd(meter.picodollars);
const unitPrice: Cell = ({ meter }) => (meter.rate === undefined ? null : formatUsd(meter.rate));
const month =
  (later: number): Cell =>
  ({ from }) => {
    const date = new Date(from);
    return timeOf(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later));
  };

/** By their column, in the order of a line; null: it has none. `x_…` is ours. */
const CELLS = {
  BilledCost: cost,
  BillingAccountId: billingAccount,
  BillingAccountName: billingAccount,
  BillingCurrency: always('USD'),
  BillingPeriodEnd: month(1),
  BillingPeriodStart: month(0),
  ChargeCategory: always('Usage'),
  ChargeClass: always(null),
  ChargeDescription: ({ row, meter }) => `${meter.name} of ${row.model}${row.tier === '' ? '' : `, ${row.tier}`}`,
  ChargeFrequency: always('Usage-Based'),
  ChargePeriodEnd: ({ to }) => timeOf(to),
  ChargePeriodStart: ({ from }) => timeOf(from),
  ConsumedQuantity: ({ meter }) => String(meter.used),
  ConsumedUnit: always('Tokens'),
  ContractedCost: cost,
  ContractedUnitPrice: unitPrice,
  EffectiveCost: cost,
  InvoiceIssuerName: provider,
  ListCost: cost,
  ListUnitPrice: unitPrice,
  PricingCategory: ({ row }) => (row.tier === 'flex' || row.batch ? 'Dynamic' : 'Standard'),
  PricingQuantity: ({ meter }) => String(meter.billed),
  PricingUnit: always('Tokens'),
  ProviderName: provider,
  PublisherName: provider,
  ServiceCategory: always('AI and Machine Learning'),
  ServiceName: ({ service }) => service,
  ServiceSubcategory: always('Generative AI'),
  SkuId: ({ row }) => row.model,
  SkuMeter: ({ meter }) => meter.name,
  SkuPriceDetails: ({ meter }) => JSON.stringify(meter.details),
  SkuPriceId: ({ row: { model, tier, priceVersion }, meter }) =>
    [model, ...(tier === '' ? [] : [tier]), meter.name, priceVersion === '' ? 'free' : priceVersion].join('/'),
  SubAccountId: account,
  SubAccountName: account,
  x_ApiKeyId: ({ row }) => row.keyId,
  x_ServiceTier: ({ row }) => (row.tier === '' ? 'default' : row.tier),
} satisfies Readonly<Record<string, Cell>>;

export const FOCUS_COLUMNS = Object.keys(CELLS) as readonly (keyof typeof CELLS)[];

/** When a day, `2026-10-03`, or an hour, `2026-10-03T14`, begins, epoch ms. */
export function startOf(period: string): number {
  return Date.parse(isHour(period) ? `${period}:00:00Z` : `${period}T00:00:00Z`);
}

/** Rows of one hour, or of one day. */
export function* focusRows(
  period: string,
  rows: Iterable<TotalsRow>,
  prices: PriceList,
  names: FocusNames,
): Generator<readonly (string | null)[]> {
  const from = startOf(period);
  const to = from + (isHour(period) ? HOUR_MS : DAY_MS);
  for (const row of rows) {
    for (const meter of metersOf(row, prices)) {
      const line = { ...names, row, meter, from, to };
      yield FOCUS_COLUMNS.map((column) => CELLS[column](line));
    }
  }
}

/** Without the kinds of which there are no tokens. Where the rates are not known any more, all tokens are one kind. */
function metersOf(row: TotalsRow, prices: PriceList): readonly Meter[] {
  const { used, billed, picodollars } = row;
  const costs = costsOfRow(row, prices);
  const rates = ratesOfRow(row, prices);
  if (!costs) {
    const sum = (of: typeof used): number => of.promptTokens + of.completionTokens;
    return [{ name: 'Tokens', details: {}, used: sum(used), billed: sum(billed), picodollars, rate: undefined }];
  }
  const meter = (
    [name, details]: readonly [string, Meter['details']],
    of: keyof Costs,
    tokens: (counts: typeof used) => number,
  ): Meter => ({
    name,
    details,
    used: tokens(used),
    billed: tokens(billed),
    picodollars: costs[of],
    rate: rates?.[of] ?? 0n,
  });
  return [
    meter(['Input Tokens', INPUT], 'input', ({ promptTokens, cachedTokens }) => promptTokens - cachedTokens),
    meter(
      ['Cached Input Tokens', { ...INPUT, x_TokenCacheAction: 'Read' }],
      'cachedInput',
      ({ cachedTokens }) => cachedTokens,
    ),
    meter(['Output Tokens', { x_TokenDirection: 'Output' }], 'output', ({ completionTokens }) => completionTokens),
  ].filter(({ used: tokens }) => tokens > 0);
}

/** Of the price by kind of tokens; undefined if the price list does not have the rates of this version any more. */
export function costsOfRow(row: TotalsRow, prices: PriceList): Costs | undefined {
  const { billed, picodollars } = row;
  if (picodollars === 0n) return { input: 0n, cachedInput: 0n, output: 0n };
  const rates = ratesOfRow(row, prices);
  const costs = rates && costsOf(rates, billed);
  return costs && costs.input + costs.cachedInput + costs.output === picodollars ? costs : undefined;
}

/** The rates of a row's version; undefined if the price list does not have them any more. */
function ratesOfRow({ model, kind, tier, priceVersion }: TotalsRow, prices: PriceList): Rates | undefined {
  return prices.ratesOf({ id: model, kind, ...(tier !== '' && { tier }) }, priceVersion);
}

const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

/** As FOCUS writes times. */
function timeOf(ms: number): string {
  return new Date(ms).toISOString().replace('.000', '');
}
