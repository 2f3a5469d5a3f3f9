/** A sidecar in this process with prices and credit, and what its usage records are compared with. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import type { Config } from '../../sidecar/config/config.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { InProcess, type Options } from './in-process.js';
import type { RawResponse } from './raw-http.js';

const CHAT_PRICE = { input: '0.15', cachedInput: '0.075', output: '0.6' };
const FLEX_PRICE = { input: '0.075', cachedInput: '0.0375', output: '0.3' };
/** Of each chat model that a test may host. */
const PRICES = {
  version: 1,
  prices: [
    {
      version: '2026-10-03.4',
      effective: '2026-01-01T00:00:00Z',
      decisions: '0.042',
      chat: {
        chat: { ...CHAT_PRICE, tiers: { flex: FLEX_PRICE, priority: { ...CHAT_PRICE, output: '1.2' } } },
        kept: CHAT_PRICE,
      },
      inputs: { embed: '0.02', cuttable: '0.02', rank: '0.03' },
    },
  ],
};

/** Picodollars for a token of a prompt, of a reply and of a decision’s input. */
export const [INPUT, OUTPUT, DECISION] = [150_000, 600_000, 42_000];
const CACHED = 75_000;

/** A sidecar with prices, whose only account has a credit of `usd`. */
export async function startPriced(
  t: Test,
  usd: string,
  options: Partial<Options> = {},
  reserve: Config['credit']['reserve'] = 'whole',
): Promise<InProcess> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-billing-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const [pricing, credit] = [join(dir, 'prices.json'), join(dir, 'credit.json')];
  await writeFile(pricing, JSON.stringify(PRICES));
  await writeFile(credit, JSON.stringify({ version: 1, accounts: { acme: [{ id: 'g', usd }] } }));
  return InProcess.start(t, {
    models: [
      { id: 'chat', kind: 'chat', seats: 4 },
      { id: 'decide', kind: 'decision' },
    ],
    ...options,
    config: { pricing: { file: pricing }, credit: { file: credit, reserve }, ...options.config },
  });
}

/** The `usage` of an answer of chat or of decisions. */
export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens: number };
}

/** The usage of a whole answer. */
export function usageOf({ body }: Pick<RawResponse, 'body'>): Usage {
  return (JSON.parse(body) as { usage: Usage }).usage;
}

/** The closing line of the last request that ended. */
export function lastClose({ spool }: InProcess): UsageRecord {
  const close = spool.records.filter(({ kind }) => kind === 'close').at(-1);
  if (!close) throw new Error('no request ended');
  return close;
}

/** Compares a closing record with the answer’s usage and with the price, in numbers small enough for exact doubles. */
export function agrees(t: Test, close: UsageRecord, usage: Usage, picodollars: number): void {
  const cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? 0;
  t.match(close, {
    outcome: 'done',
    promptTokens: usage.prompt_tokens,
    cachedTokens,
    completionTokens: usage.completion_tokens,
    price: { version: '2026-10-03.4', picodollars: String(picodollars) },
    prepaid: true,
  });
  t.ok(usage.prompt_tokens > 0);
}

/** Picodollars; `cached`: tokens of the prompt that were reused. */
export function chatPrice({ prompt_tokens: prompt, completion_tokens: completion }: Usage, cached = 0): number {
  return (prompt - cached) * INPUT + cached * CACHED + completion * OUTPUT;
}
