/** What a schema requires of a number besides its type. */

export interface NumberRange {
  readonly least: number;
  readonly most: number;
  /** The bound itself is outside. */
  readonly aboveLeast: boolean;
  readonly belowMost: boolean;
  /** Each divides the number. */
  readonly steps: readonly number[];
}

export const ANY_NUMBER: NumberRange = {
  least: -Infinity,
  most: Infinity,
  aboveLeast: false,
  belowMost: false,
  steps: [],
};

/** Steps of one value that are kept; further ones, from an allOf, are not enforced. */
const MAX_STEPS = 4;

/** What the keywords of one schema require. In draft 4 the exclusive bounds are booleans. */
export function numberRange(schema: Readonly<Record<string, unknown>>): NumberRange {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  if ([minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf].every((keyword) => keyword === undefined)) {
    return ANY_NUMBER;
  }
  const ranges: NumberRange[] = [
    { ...ANY_NUMBER, ...(typeof minimum === 'number' && { least: minimum, aboveLeast: exclusiveMinimum === true }) },
    { ...ANY_NUMBER, ...(typeof maximum === 'number' && { most: maximum, belowMost: exclusiveMaximum === true }) },
    { ...ANY_NUMBER, ...(typeof exclusiveMinimum === 'number' && { least: exclusiveMinimum, aboveLeast: true }) },
    { ...ANY_NUMBER, ...(typeof exclusiveMaximum === 'number' && { most: exclusiveMaximum, belowMost: true }) },
    { ...ANY_NUMBER, ...(typeof multipleOf === 'number' && multipleOf > 0 && { steps: [multipleOf] }) },
  ];
  return ranges.reduce(narrowerNumbers);
}

/** What both require. */
export function narrowerNumbers(a: NumberRange, b: NumberRange): NumberRange {
  if (a === ANY_NUMBER || a === b) return b;
  if (b === ANY_NUMBER) return a;
  const least = Math.max(a.least, b.least);
  const most = Math.min(a.most, b.most);
  return {
    least,
    most,
    aboveLeast: (a.least === least && a.aboveLeast) || (b.least === least && b.aboveLeast),
    belowMost: (a.most === most && a.belowMost) || (b.most === most && b.belowMost),
    steps: [...new Set([...a.steps, ...b.steps])].slice(0, MAX_STEPS),
  };
}

/** Whether a value of an enum is within. */
export function isWithin(value: number, { least, most, aboveLeast, belowMost, steps }: NumberRange): boolean {
  if (aboveLeast ? value <= least : value < least) return false;
  if (belowMost ? value >= most : value > most) return false;
  // As near to whole as doubles of this size are.
  return steps.every((step) => Math.abs(value / step - Math.round(value / step)) <= 1e-9 * Math.abs(value / step));
}
