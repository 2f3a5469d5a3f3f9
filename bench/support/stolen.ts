import { readFileSync } from 'node:fs';

/** What of this machine's time its own host gave to others while there was work for it: Linux's "steal". From its making on. */
export class Stolen {
  readonly #from = ticks();

  /** Of all processors' time, in percent; 0 where the system does not say. */
  get percent(): number {
    const now = ticks();
    const all = now.all - this.#from.all;
    return all > 0 ? (100 * (now.stolen - this.#from.stolen)) / all : 0;
  }
}

interface Ticks {
  readonly all: number;
  readonly stolen: number;
}

/** The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; what guests take is in user already. */
function ticks(): Ticks {
  try {
    const [, ...fields] = (readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] ?? '').split(/\s+/);
    const counts = fields.slice(0, 8).map(Number);
    return { all: counts.reduce((sum, count) => sum + count, 0), stolen: counts[7] ?? 0 };
  } catch {
    return { all: 0, stolen: 0 };
  }
}

/** Rounds that count, and rounds at most. */
const COUNTED = 5;
const TRIED = 30;
/** Percent of a round's time that the host may take: its pauses, of milliseconds, are then no whole percent of the requests. */
const QUIET_PERCENT = 0.5;

export interface QuietRounds<T> {
  /** Those in which the host took least. */
  readonly rounds: readonly T[];
  readonly tried: number;
  /** The most that it took in one of them. */
  readonly stolenPercent: number;
}

/** Measures until enough rounds were quiet; after so many tries the quietest count, and `stolenPercent` says how quiet they were. */
export async function quietRounds<T>(measure: () => Promise<T>): Promise<QuietRounds<T>> {
  const all: { readonly round: T; readonly percent: number }[] = [];
  const quiet = (): number => all.filter(({ percent }) => percent <= QUIET_PERCENT).length;
  while (quiet() < COUNTED && all.length < TRIED) {
    const stolen = new Stolen();
    const round = await measure();
    all.push({ round, percent: stolen.percent });
  }
  const counted = all.toSorted((a, b) => a.percent - b.percent).slice(0, COUNTED);
  return {
    rounds: counted.map(({ round }) => round),
    tried: all.length,
    stolenPercent: counted.at(-1)?.percent ?? 0,
  };
}
