/** Numbers that JavaScript has no value for, and how Python writes numbers, as templates expect them. */

/** A number of JSON as it is written: whole with a point or an exponent, or with more digits than a double has. */
export class WrittenNumber {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }

  /** The nearest double. */
  get value(): number {
    return Number(this.source);
  }

  get isFloat(): boolean {
    return /[.eE]/.test(this.source);
  }
}

/** Whether JSON.parse makes a number of it that is written otherwise, or that is no float where Python has one. */
export function needsWriting(source: string): boolean {
  const value = Number(source);
  return /[.eE]/.test(source) ? Number.isInteger(value) : String(value) !== source && value !== 0;
}

/** What Python's `repr` makes of a float. */
export function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  const [digits = '', exponent = ''] = value.toExponential().split('e');
  const power = Number(exponent);
  if (power < -4 || power >= 16) {
    return `${digits}e${power < 0 ? '-' : '+'}${String(Math.abs(power)).padStart(2, '0')}`;
  }
  const text = Object.is(value, -0) ? '-0' : String(value);
  return text.includes('.') ? text : `${text}.0`;
}
