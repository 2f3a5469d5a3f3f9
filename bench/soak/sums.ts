/** Compares the usage reported to callers with what the spool bills, per request and in total. */
import type { Answer, ReportedUsage } from './caller.js';

/** Prices of the soak, in picodollars a token, and the price list that says so in USD for a million. */
const RATES = { input: 150_000n, cachedInput: 75_000n, output: 600_000n };
const USD = { input: '0.15', cachedInput: '0.075', output: '0.60' };

/** A price list (docs/accounts.md) in which `model` costs {@link RATES}. */
export function priceList(model: string): object {
  const version = { version: 'soak', effective: '2026-01-01T00:00:00Z', decisions: '0' };
  return { version: 1, prices: [{ ...version, chat: { [model]: USD } }] };
}

/** A close as `ra-sidecar usage export` writes it; fields that are not compared are left out. */
export interface Close extends ReportedUsage {
  readonly requestId: string;
  readonly price?: { readonly picodollars: string };
}

/** Sums are picodollars, everything else counts requests. */
export interface Sums {
  /** The price of whole replies by the usage reported to their callers. */
  readonly reported: bigint;
  /** The prices of their closes. */
  readonly billed: bigint;
  /** The prices of the closes of all others: cut off, or left by their callers. */
  readonly billedOthers: bigint;
  /** Requests that were closed twice, however they ended, and whole replies whose close is missing or has other counts. */
  readonly different: number;
  /** Requests that were answered with an error, and billed. */
  readonly billedForNothing: number;
  /** Closes of requests that no caller sent. */
  readonly strange: number;
}

/** `closes`: the whole export. */
export function compare(answers: readonly Answer[], closes: readonly Close[]): Sums {
  const byId = new Map<string, Close[]>();
  for (const close of closes) byId.set(close.requestId, [...(byId.get(close.requestId) ?? []), close]);
  const sums = { reported: 0n, billed: 0n, billedOthers: 0n, different: 0, billedForNothing: 0 };
  for (const { id, end, reported } of answers) {
    const found = byId.get(id) ?? [];
    byId.delete(id);
    const price = found.reduce((sum, close) => sum + BigInt(close.price?.picodollars ?? 0), 0n);
    const [close] = found;
    if (found.length > 1 || (reported && (!close || !same(close, reported)))) sums.different += 1;
    if (reported) {
      sums.reported += cost(reported);
      sums.billed += price;
    } else {
      sums.billedOthers += price;
      if (end === 'refused' && price > 0n) sums.billedForNothing += 1;
    }
  }
  return { ...sums, strange: [...byId.values()].flat().length };
}

function cost({ promptTokens, cachedTokens, completionTokens }: ReportedUsage): bigint {
  const fresh = BigInt(promptTokens - cachedTokens) * RATES.input;
  return fresh + BigInt(cachedTokens) * RATES.cachedInput + BigInt(completionTokens) * RATES.output;
}

function same(close: Close, reported: ReportedUsage): boolean {
  return (['promptTokens', 'cachedTokens', 'completionTokens'] as const).every(
    (count) => close[count] === reported[count],
  );
}
