/**
 * The default decision of the Gateway API Inference Extension’s endpoint picker from its readings: the weighted sum of
 * its queue scorer and its KV scorer, and the highest score wins. Its third scorer, for prompts’ prefixes, has no
 * effect for prompts that are all different, so it is left out.
 */

/** The last reading of one endpoint. */
export interface Reading {
  readonly waiting: number;
  /** 0 to 1. */
  readonly kvUsage: number;
}

/** Both scorers' weight in its default configuration. */
const QUEUE_WEIGHT = 2;
const KV_WEIGHT = 2;

/** One score an endpoint, in the same order. */
export function scores(readings: readonly Reading[]): number[] {
  const waits = readings.map(({ waiting }) => waiting);
  const [least, most] = [Math.min(...waits), Math.max(...waits)];
  return readings.map(({ waiting, kvUsage }) => {
    const queue = most === least ? 1 : (most - waiting) / (most - least);
    return QUEUE_WEIGHT * queue + KV_WEIGHT * (1 - kvUsage);
  });
}

/** The index of the highest score; of equals any, by `random`. */
export function pick(readings: readonly Reading[], random: () => number): number {
  const all = scores(readings);
  const best = Math.max(...all);
  const winners = all.flatMap((score, i) => (score === best ? [i] : []));
  return winners[Math.floor(random() * winners.length)] ?? 0;
}

/** Reads a metrics page as the picker does: the first sample of a name. Throws if one is missing. */
export function readingOf(page: string, names: { readonly waiting: string; readonly kvUsage: string }): Reading {
  const first = (name: string): number => {
    const line = page.split('\n').find((text) => text.startsWith(`${name} `) || text.startsWith(`${name}{`));
    if (line === undefined) throw new Error(`no ${name} on the page`);
    return Number(line.slice(line.lastIndexOf(' ') + 1));
  };
  return { waiting: Math.trunc(first(names.waiting)), kvUsage: first(names.kvUsage) };
}
