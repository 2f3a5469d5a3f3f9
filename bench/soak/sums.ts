/** What callers were told beside what the spool bills: request by request and in all. */
import type { Answer } from './caller.js';

/** A close as `ra-sidecar usage export` writes it; fields that are not compared are left out. */
export interface Close {
  readonly requestId: string;
  readonly outcome: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

export interface Sums {
  /** Tokens that callers of whole answers were told of. */
  readonly told: number;
  /** Tokens of the closes of these very requests. */
  readonly billed: number;
  /** Tokens of the closes of all others: cut off, or left by their callers. */
  readonly billedOthers: number;
  /** Whole answers whose close is missing, twice there, or has other counts. */
  readonly different: number;
  /** Requests that were answered with an error, and billed for. */
  readonly billedForNothing: number;
  /** Closes of requests that nobody sent. */
  readonly strange: number;
}

/** `closes`: the whole export. */
export function compare(answers: readonly Answer[], closes: readonly Close[]): Sums {
  const byId = new Map<string, Close[]>();
  for (const close of closes) byId.set(close.requestId, [...(byId.get(close.requestId) ?? []), close]);
  const sums = { told: 0, billed: 0, billedOthers: 0, different: 0, billedForNothing: 0 };
  for (const { id, end, told } of answers) {
    const found = byId.get(id) ?? [];
    byId.delete(id);
    const tokens = found.reduce((sum, close) => sum + close.promptTokens + close.completionTokens, 0);
    if (told) {
      sums.told += told.promptTokens + told.completionTokens;
      sums.billed += tokens;
      const same =
        found.length === 1 &&
        found[0]?.promptTokens === told.promptTokens &&
        found[0].completionTokens === told.completionTokens;
      if (!same) sums.different += 1;
    } else {
      sums.billedOthers += tokens;
      if (end === 'refused' && tokens > 0) sums.billedForNothing += 1;
    }
  }
  return { ...sums, strange: [...byId.values()].flat().length };
}
