/** Whether two samples are of one distribution. */

/** The probability of two samples of equal size that differ at least as much, if they are of one distribution. */
export function sameDistribution(counts: readonly (readonly [number, number])[]): number {
  // Tokens that were drawn less often than the test may assume are one class.
  const rare = counts.filter(([one, other]) => one + other < 10);
  const classes = counts
    .filter(([one, other]) => one + other >= 10)
    .map(([one, other]): [number, number] => [one, other]);
  const rest: [number, number] = [
    rare.reduce((sum, [one]) => sum + one, 0),
    rare.reduce((sum, [, other]) => sum + other, 0),
  ];
  if (rest[0] + rest[1] > 0) classes.push(rest);
  const square = classes.reduce((sum, [one, other]) => sum + (one - other) ** 2 / (one + other), 0);
  const freedom = classes.length - 1;
  if (freedom === 0) return 1;
  // Wilson and Hilferty's approximation of the chi-square distribution by the normal one.
  const spread = 2 / (9 * freedom);
  const z = (Math.cbrt(square / freedom) - (1 - spread)) / Math.sqrt(spread);
  return 1 - normal(z);
}

/** The normal distribution's sum up to `z`, within 1e-7 (Abramowitz and Stegun, 26.2.17). */
function normal(z: number): number {
  const k = 1 / (1 + 0.2316419 * Math.abs(z));
  const terms = [0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429];
  const tail =
    (Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI)) * terms.reduce((sum, term, i) => sum + term * k ** (i + 1), 0);
  return z >= 0 ? 1 - tail : tail;
}
