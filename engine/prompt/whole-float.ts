/**
 * A number that is written with a point or an exponent and is whole: JavaScript has no such number, and templates write it with a
 * point.
 */
export class WholeFloat {
  readonly value: number;

  constructor(value: number) {
    this.value = value;
  }
}
