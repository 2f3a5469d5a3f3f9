import { readFileSync } from 'node:fs';

/**
 * The time of this machine that its host gave to others while there was work for it: Linux’s "steal". From its creation
 * on.
 */
export class Stolen {
  readonly #from = ticks();

  /** Of all processors’ time, in percent; undefined if the system does not report it. */
  get percent(): number | undefined {
    const now = ticks();
    if (!now || !this.#from) return undefined;
    const all = now.all - this.#from.all;
    return all > 0 ? (100 * (now.stolen - this.#from.stolen)) / all : 0;
  }
}

interface Ticks {
  readonly all: number;
  readonly stolen: number;
}

/**
 * The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; guests’ time is in user already.
 */
function ticks(): Ticks | undefined {
  try {
    const [, ...fields] = (readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] ?? '').split(/\s+/);
    const counts = fields.slice(0, 8).map(Number);
    const [stolen] = counts.slice(7);
    return stolen === undefined ? undefined : { all: counts.reduce((sum, count) => sum + count, 0), stolen };
  } catch {
    return undefined;
  }
}

/** Rounds that count, and rounds at most. */
const COUNTED = 5;
const TRIED = 30;
/** Percent of all processors’ time that the host may take in a quiet round: on two cores one percent of each. */
const QUIET_PERCENT = 0.5;

export interface QuietRounds<T> {
  /** Those in which the host took least. */
  readonly rounds: readonly T[];
  /** These and all others. */
  readonly tried: readonly T[];
  /** The most that it took in one that counts; undefined: unknown, and the first ones count. */
  readonly stolenPercent: number | undefined;
}

/** Measures until enough rounds were quiet; after so many tries the quietest count, with `stolenPercent`. */
export async function quietRounds<T>(measure: () => Promise<T>): Promise<QuietRounds<T>> {
  const all: { readonly round: T; readonly percent: number | undefined }[] = [];
  const quiet = (): number => all.filter(({ percent = 0 }) => percent <= QUIET_PERCENT).length;
  while (quiet() < COUNTED && all.length < TRIED) {
    const stolen = new Stolen();
    const round = await measure();
    all.push({ round, percent: stolen.percent });
  }
  const counted = all.toSorted((a, b) => (a.percent ?? 0) - (b.percent ?? 0)).slice(0, COUNTED);
  return {
    rounds: counted.map(({ round }) => round),
    tried: all.map(({ round }) => round),
    stolenPercent: counted.at(-1)?.percent,
  };
}
