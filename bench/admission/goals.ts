/** The goals of docs/admission.md#goals, beside the results. */
import type { Row } from '../support/results.js';
import { ALL_OVER, NEAR_SHARE, ONE_LENGTH, TWO_LENGTHS, type Mix, type Result } from './scenarios.js';
import type { Recovery } from './surge.js';

interface Goal {
  readonly what: string;
  readonly least?: number;
  readonly most?: number;
  readonly came: number;
  /** The case of the worst figure. */
  readonly where: string;
}

/** The worst figure of each goal. `results` are those of one policy, for all mixes. */
export function goals(results: readonly Result[], { worst }: Recovery): Row[] {
  const overloaded = results.filter(({ load }) => load >= 1.5);
  const heavy = overloaded.filter(({ mix }) => mix !== ALL_OVER);
  const list: Goal[] = [
    { what: 'useful seat time over capacity, from 1.5 times the load', least: 0.98, ...lowest(overloaded, 'goodput') },
    {
      what: 'light accounts served inside their budget at 4 times the load',
      least: 0.98,
      ...lowest(
        heavy.filter(({ load }) => load === 4),
        'lightServed',
      ),
    },
    { what: 'Jain index of seat time, backlogged accounts', least: 0.99, ...lowest(of(overloaded, ALL_OVER), 'jain') },
    ...[ONE_LENGTH, NEAR_SHARE, TWO_LENGTHS, ALL_OVER].map((mix) => ({
      what: `let in, then timed out in the queue: ${mix.name}`,
      most: 0.03,
      ...highest(of(results, mix), 'timedOut'),
    })),
    {
      what: 'recovery after 60 s at twice the load, s',
      most: 10,
      came: worst,
      where: 'then half the load; the worst run',
    },
  ];
  return list.map(({ what, least, most, came, where }) => ({
    what,
    goal: least === undefined ? `at most ${most ?? ''}` : `at least ${least}`,
    'came out': came.toFixed(3),
    reached: came >= (least ?? -Infinity) && came <= (most ?? Infinity) ? 'yes' : '**no**',
    where,
  }));
}

type Measure = 'goodput' | 'lightServed' | 'jain' | 'timedOut';

function lowest(results: readonly Result[], measure: Measure): Pick<Goal, 'came' | 'where'> {
  return worst(results, measure, (a, b) => a[measure] - b[measure]);
}

function highest(results: readonly Result[], measure: Measure): Pick<Goal, 'came' | 'where'> {
  return worst(results, measure, (a, b) => b[measure] - a[measure]);
}

function worst(
  results: readonly Result[],
  measure: Measure,
  order: (a: Result, b: Result) => number,
): Pick<Goal, 'came' | 'where'> {
  const found = [...results].sort(order)[0];
  if (found === undefined) throw new Error(`nothing was measured for ${measure}`);
  return { came: found[measure], where: `${found.mix.name}, ${found.load} times the load` };
}

function of(results: readonly Result[], mix: Mix): Result[] {
  return results.filter((result) => result.mix === mix);
}
