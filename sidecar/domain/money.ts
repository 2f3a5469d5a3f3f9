/**
 * Money: whole picodollars (10⁻¹² USD) as bigint, and decimal text wherever it is stored or entered. Floating-point
 * numbers are never used, since they could not represent these amounts exactly.
 *
 * A price of 1 USD for a million tokens is 10⁻⁶ USD a token, which is 1,000,000 picodollars; so 0.042 USD is 42,000.
 */

/** Decimal places of a dollar amount in picodollars. */
const PICO_DIGITS = 12;
/** Decimal places of a rate in USD per million tokens, which make whole picodollars per token. */
const RATE_DIGITS = 6;
/** Digits before the point: a trillion dollars. Longer text is a typing error, and parsing it would take time. */
const WHOLE_DIGITS = 12;

const DECIMAL = new RegExp(`^(-?)(\\d{1,${WHOLE_DIGITS}})(?:\\.(\\d{1,30}))?$`);
const INTEGER = /^-?\d{1,40}$/;

/** Prices of a model's tokens, in picodollars a token. */
export interface Rates {
  /** A prompt token that had to be evaluated. */
  readonly input: bigint;
  /** A prompt token whose state was reused. */
  readonly cachedInput: bigint;
  readonly output: bigint;
}

/** Tokens of one request. Whole numbers; `cachedTokens` is a part of `promptTokens`. */
export interface TokenCounts {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

export const NO_TOKENS: TokenCounts = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };

/** `sign`: -1: without the tokens of `b`. */
export function addTokens(a: TokenCounts, b: TokenCounts, sign: 1 | -1 = 1): TokenCounts {
  return {
    promptTokens: a.promptTokens + sign * b.promptTokens,
    cachedTokens: a.cachedTokens + sign * b.cachedTokens,
    completionTokens: a.completionTokens + sign * b.completionTokens,
  };
}

/** The price of tokens by their kind, in picodollars. */
export type Costs = Rates;

/** The price of these tokens at these rates, by their kind. */
export function costsOf({ input, cachedInput, output }: Rates, tokens: TokenCounts): Costs {
  const { promptTokens, cachedTokens, completionTokens } = tokens;
  return {
    input: BigInt(promptTokens - cachedTokens) * input,
    cachedInput: BigInt(cachedTokens) * cachedInput,
    output: BigInt(completionTokens) * output,
  };
}

export function addCosts(a: Costs, b: Costs): Costs {
  return { input: a.input + b.input, cachedInput: a.cachedInput + b.cachedInput, output: a.output + b.output };
}

/** The price of these tokens at these rates, in one sum. */
export function costOf(rates: Rates, tokens: TokenCounts): bigint {
  const { input, cachedInput, output } = costsOf(rates, tokens);
  return input + cachedInput + output;
}

/** The highest price of a request with these token counts: no prompt token is reused, unless reused ones cost more. */
export function worstCostOf(rates: Rates, promptTokens: number, completionTokens: number): bigint {
  const input = rates.input > rates.cachedInput ? rates.input : rates.cachedInput;
  return costOf({ ...rates, input }, { promptTokens, cachedTokens: 0, completionTokens });
}

/**
 * Picodollars a token, from USD per million tokens as decimal text (`0.042`). Undefined if it is not a decimal number of at least 0, or not
 * a whole number of picodollars a token.
 */
export function parseRate(usdPerMillion: string): bigint | undefined {
  const rate = parseDecimal(usdPerMillion, RATE_DIGITS);
  return rate === undefined || rate < 0n ? undefined : rate;
}

/** Picodollars from USD as decimal text (`25.00`, `-3.5`). Undefined if it is not a decimal number, or finer than a picodollar. */
export function parseUsd(usd: string): bigint | undefined {
  return parseDecimal(usd, PICO_DIGITS);
}

/** Picodollars as exact USD in decimal text, without trailing zeros: `1.5`, `-0.000000042`. */
export function formatUsd(picodollars: bigint): string {
  const digits = String(picodollars < 0n ? -picodollars : picodollars).padStart(PICO_DIGITS + 1, '0');
  const fraction = digits.slice(-PICO_DIGITS).replace(/0+$/, '');
  return `${picodollars < 0n ? '-' : ''}${digits.slice(0, -PICO_DIGITS)}${fraction === '' ? '' : `.${fraction}`}`;
}

/** USD as the number that is nearest to these picodollars, for clients that read no text. Sums are made of the exact amounts. */
export function usdNumber(picodollars: bigint): number {
  return Number(formatUsd(picodollars));
}

/** Picodollars from their decimal text in records. Undefined if it is not an integer. */
export function parsePicodollars(text: string): bigint | undefined {
  return INTEGER.test(text) ? BigInt(text) : undefined;
}

/** The number in units of its `places`th decimal place. Further zeros are allowed, since they do not change the value. */
function parseDecimal(text: string, places: number): bigint | undefined {
  const [, sign, whole, fraction = ''] = DECIMAL.exec(text) ?? [];
  if (whole === undefined || /[1-9]/.test(fraction.slice(places))) return undefined;
  const value = BigInt(whole + fraction.slice(0, places).padEnd(places, '0'));
  return sign === '-' ? -value : value;
}
