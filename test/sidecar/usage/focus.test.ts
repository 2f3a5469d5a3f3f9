/** The export in FOCUS' columns, held to that specification: which columns there are, and what each may contain. */
import t from 'tap';
import { NO_TOKENS, parseUsd } from '../../../sidecar/domain/money.js';
import { FOCUS_COLUMNS, focusRows } from '../../../sidecar/usage/focus.js';
import { inputRates, PriceList } from '../../../sidecar/usage/prices.js';
import type { TotalsRow } from '../../../sidecar/usage/totals-files.js';

const DECIMAL = /^-?\d+(?:\.\d+)?$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
/** FOCUS 1.2, attribute "Unit Format": words with capitals. */
const UNIT = /^[A-Z][A-Za-z]*(?:[- ][A-Z][A-Za-z]*)*$/;
const CURRENCY = /^[A-Z]{3}$/;
const TEXT = /\S/;
const JSON_OBJECT = /^\{.*\}$/;

/**
 * FOCUS 1.2's columns of a usage row of a provider without regions, commitments, tags or invoices' numbers: what each must match.
 * `null`: it may be null.
 */
const RULES: Readonly<Record<string, RegExp | readonly (string | null)[] | readonly [RegExp, null]>> = {
  BilledCost: DECIMAL,
  BillingAccountId: TEXT,
  BillingAccountName: [TEXT, null],
  BillingCurrency: CURRENCY,
  BillingPeriodEnd: TIME,
  BillingPeriodStart: TIME,
  ChargeCategory: ['Usage', 'Purchase', 'Tax', 'Credit', 'Adjustment'],
  ChargeClass: ['Correction', null],
  ChargeDescription: [TEXT, null],
  ChargeFrequency: ['One-Time', 'Recurring', 'Usage-Based'],
  ChargePeriodEnd: TIME,
  ChargePeriodStart: TIME,
  ConsumedQuantity: [DECIMAL, null],
  ConsumedUnit: [UNIT, null],
  ContractedCost: DECIMAL,
  ContractedUnitPrice: [DECIMAL, null],
  EffectiveCost: DECIMAL,
  InvoiceIssuerName: TEXT,
  ListCost: DECIMAL,
  ListUnitPrice: [DECIMAL, null],
  PricingCategory: ['Standard', 'Dynamic', 'Committed', 'Other', null],
  PricingQuantity: DECIMAL,
  PricingUnit: UNIT,
  ProviderName: TEXT,
  PublisherName: TEXT,
  ServiceCategory: ['AI and Machine Learning'],
  ServiceName: TEXT,
  ServiceSubcategory: ['AI Platforms', 'Bots', 'Generative AI', 'Machine Learning', 'Natural Language Processing'],
  SkuId: [TEXT, null],
  SkuMeter: [TEXT, null],
  SkuPriceDetails: JSON_OBJECT,
  SkuPriceId: TEXT,
  SubAccountId: [TEXT, null],
  SubAccountName: [TEXT, null],
};

/** What FOCUS 1.2 requires of each row. */
const MANDATORY = [
  ...[
    ...['BilledCost', 'BillingAccountId', 'BillingAccountName', 'BillingCurrency', 'BillingPeriodEnd'],
    'BillingPeriodStart',
  ],
  ...['ChargeCategory', 'ChargeClass', 'ChargeDescription', 'ChargePeriodEnd', 'ChargePeriodStart', 'ContractedCost'],
  ...[
    ...['EffectiveCost', 'InvoiceIssuerName', 'ListCost', 'PricingQuantity', 'PricingUnit', 'ProviderName'],
    'PublisherName',
  ],
  ...['ServiceCategory', 'ServiceName'],
];

const RATES = { input: 150_000n, cachedInput: 75_000n, output: 600_000n };
const PRICES = new PriceList([
  {
    version: 'v1',
    effective: 0,
    decisions: inputRates(42_000n),
    chat: new Map([['m', { ...RATES, tiers: { flex: RATES } }]]),
  },
]);

const USED = { promptTokens: 100, cachedTokens: 60, completionTokens: 10 };
const ROW: TotalsRow = {
  account: 'acme',
  keyId: 'key-1',
  model: 'm',
  kind: 'chat',
  tier: '',
  batch: false,
  priceVersion: 'v1',
  requests: 2,
  used: { ...USED, completionTokens: 30 },
  billed: USED,
  picodollars: 16_500_000n,
};

type Cells = Readonly<Record<(typeof FOCUS_COLUMNS)[number], string | null>>;

function exported(row: TotalsRow, period = '2026-12-31'): readonly Cells[] {
  const names = { provider: 'Our company', service: 'Chats', billingAccount: 'b' };
  return Array.from(
    focusRows(period, [row], PRICES, names),
    (cells) => Object.fromEntries(FOCUS_COLUMNS.map((column, i) => [column, cells[i]])) as Cells,
  );
}

function isAllowed(rule: (typeof RULES)[string] | undefined, cell: string | null): boolean {
  if (rule instanceof RegExp) return cell !== null && rule.test(cell);
  return rule?.some((each) => (each instanceof RegExp ? cell !== null && each.test(cell) : each === cell)) === true;
}

t.test('every row keeps to the columns of FOCUS, and costs are quantity times price', async (t) => {
  for (const column of MANDATORY)
    t.ok(
      FOCUS_COLUMNS.some((each) => each === column),
      column,
    );
  const free = {
    ...ROW,
    priceVersion: '',
    picodollars: 0n,
    billed: { promptTokens: 0, cachedTokens: 0, completionTokens: 0 },
  };
  const all = [
    ...[ROW, { ...ROW, priceVersion: 'gone' }, { ...ROW, kind: 'decision' as const, picodollars: 7n }],
    ...[free, { ...free, priceVersion: 'gone' }],
  ];
  for (const cells of all.flatMap((row) => exported(row))) {
    for (const column of FOCUS_COLUMNS) {
      if (!column.startsWith('x_')) t.ok(isAllowed(RULES[column], cells[column]), `${column}: ${cells[column]}`);
    }
    for (const cost of ['EffectiveCost', 'ContractedCost', 'ListCost'] as const) t.equal(cells[cost], cells.BilledCost);
    if (cells.ListUnitPrice === null) {
      t.equal(cells.SkuMeter, 'Tokens', 'a usage row has a unit price, unless its rates are not known any more');
      continue;
    }
    const price = parseUsd(cells.ListUnitPrice) ?? -1n;
    t.equal(parseUsd(cells.BilledCost ?? ''), price * BigInt(cells.PricingQuantity ?? '-1'));
    t.equal(cells.ContractedUnitPrice, cells.ListUnitPrice);
  }
});

t.test('a row for each kind of tokens, or one if its rates are not known any more', async (t) => {
  const [input, cached, output, ...others] = exported(ROW);
  t.strictSame(others, []);
  t.match(input, {
    BilledCost: '0.000006',
    BillingPeriodStart: '2026-12-01T00:00:00Z',
    BillingPeriodEnd: '2027-01-01T00:00:00Z',
    ChargePeriodStart: '2026-12-31T00:00:00Z',
    ChargePeriodEnd: '2027-01-01T00:00:00Z',
    ConsumedQuantity: '40',
    ListUnitPrice: '0.00000015',
    ProviderName: 'Our company',
    ServiceName: 'Chats',
    SkuId: 'm',
    SkuMeter: 'Input Tokens',
    SkuPriceDetails: '{"x_TokenDirection":"Input"}',
    SkuPriceId: 'm/Input Tokens/v1',
    SubAccountId: 'acme',
    x_ApiKeyId: 'key-1',
  });
  t.match(exported(ROW, '2026-12-31T23')[0], {
    BillingPeriodStart: '2026-12-01T00:00:00Z',
    ChargePeriodStart: '2026-12-31T23:00:00Z',
    ChargePeriodEnd: '2027-01-01T00:00:00Z',
  });
  t.match(cached, { BilledCost: '0.0000045', PricingQuantity: '60', SkuMeter: 'Cached Input Tokens' });
  t.match(output, { BilledCost: '0.000006', PricingQuantity: '10', ConsumedQuantity: '30' }, 'not all are charged');
  t.match(exported({ ...ROW, priceVersion: 'gone' }), [
    {
      BilledCost: '0.0000165',
      PricingQuantity: '110',
      ConsumedQuantity: '130',
      SkuMeter: 'Tokens',
      ListUnitPrice: null,
    },
  ]);
  const decision = { ...ROW, kind: 'decision', used: { ...USED, completionTokens: 0, cachedTokens: 0 } } as const;
  t.match(exported({ ...decision, billed: decision.used, picodollars: 4_200_000n }), [
    { BilledCost: '0.0000042', SkuMeter: 'Input Tokens' },
  ]);
  t.match(
    exported({ ...ROW, picodollars: 7n }),
    [{ BilledCost: '0.000000000007', SkuMeter: 'Tokens', ListUnitPrice: null }],
    'costs that its rates do not give',
  );
  t.match(exported({ ...ROW, tier: 'flex' })[0], {
    BilledCost: '0.000006',
    SkuPriceId: 'm/flex/Input Tokens/v1',
    x_ServiceTier: 'flex',
  });
  const categories = [ROW, { ...ROW, tier: 'flex' as const }, { ...ROW, batch: true }].map((row) => [
    ...new Set(exported(row).map(({ PricingCategory: category }) => category)),
  ]);
  t.match(exported({ ...ROW, priceVersion: '', billed: NO_TOKENS, picodollars: 0n })[0], {
    BilledCost: '0',
    ListUnitPrice: '0',
    SkuPriceId: 'm/Input Tokens/free',
  });
  t.strictSame(categories, [['Standard'], ['Dynamic'], ['Dynamic']], 'on lent seats');
  t.equal(exported({ ...decision, billed: decision.used, picodollars: 4_200_000n }).length, 1, 'no row without tokens');
});
