/** Which characters a class of a grammar has. */
import type { CharacterClass } from './program.js';

/** Characters above one at which a class begins, or after which it ends, ascending. */
export function boundsOf(classes: readonly CharacterClass[], above: number): readonly number[] {
  const bounds = new Set<number>();
  for (const { ranges } of classes) {
    for (let i = 0; i < ranges.length; i += 2) {
      for (const bound of [ranges[i] ?? 0, (ranges[i + 1] ?? 0) + 1]) if (bound > above) bounds.add(bound);
    }
  }
  return [...bounds].sort((a, b) => a - b);
}

/** Whether a class has a character. */
export function allows(characters: CharacterClass | undefined, character: number): boolean {
  return characters !== undefined && inRanges(characters, character, character) !== characters.not;
}

/** Whether a class has one of the characters. */
export function overlaps(characters: CharacterClass | undefined, low: number, high: number): boolean {
  if (characters === undefined) return false;
  return characters.not ? !covers(characters, low, high) : inRanges(characters, low, high);
}

/** Whether the ranges have all of the characters. */
function covers({ ranges }: CharacterClass, low: number, high: number): boolean {
  let at = low;
  for (let i = 0; i < ranges.length && at <= high; i += 2) {
    if ((ranges[i] ?? 0) > at || at > (ranges[i + 1] ?? 0)) continue;
    at = (ranges[i + 1] ?? 0) + 1;
    i = -2;
  }
  return at > high;
}

/** Whether a range has one of the characters. */
function inRanges({ ranges }: CharacterClass, low: number, high: number): boolean {
  for (let i = 0; i < ranges.length; i += 2) {
    if ((ranges[i] ?? 0) <= high && low <= (ranges[i + 1] ?? 0)) return true;
  }
  return false;
}

/** How many of the bounds are not above a character. */
export function rangeOf(bounds: readonly number[], character: number): number {
  let [low, high] = [0, bounds.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((bounds[middle] ?? 0) <= character) low = middle + 1;
    else high = middle;
  }
  return low;
}
