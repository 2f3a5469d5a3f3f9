/** The quality of probabilities: accuracy, Brier score, expected calibration error, and the best temperature. */

/** A question's probabilities, in its answers' order, and the index of the right one. */
export interface Outcome {
  readonly probabilities: readonly number[];
  readonly answer: number;
}

const BINS = 10;
/** Temperatures tried: 0.3 to 4. */
const TEMPERATURES = Array.from({ length: 60 }, (_, at) => 0.3 * (4 / 0.3) ** (at / 59));
/** A probability of zero would make the logarithm infinite. */
const LEAST = 1e-12;

export function best(probabilities: readonly number[]): number {
  return probabilities.indexOf(Math.max(...probabilities));
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

export function accuracy(outcomes: readonly Outcome[]): number {
  return mean(outcomes.map(({ probabilities, answer }) => (best(probabilities) === answer ? 1 : 0)));
}

/** Share whose most likely level is the right one or beside it. */
export function withinOne(outcomes: readonly Outcome[]): number {
  return mean(outcomes.map(({ probabilities, answer }) => (Math.abs(best(probabilities) - answer) <= 1 ? 1 : 0)));
}

/** Brier's score over all answers: 0 is perfect, 2 is certain and wrong. */
export function brier(outcomes: readonly Outcome[]): number {
  return mean(
    outcomes.map(({ probabilities, answer }) =>
      probabilities.reduce((sum, p, at) => sum + (p - (at === answer ? 1 : 0)) ** 2, 0),
    ),
  );
}

/**
 * Mean distance of confidence and accuracy over ten bins of the most likely answer’s probability, each by its share.
 */
export function calibrationError(outcomes: readonly Outcome[]): number {
  const bins = Array.from({ length: BINS }, (): { confidence: number; right: number } => ({ confidence: 0, right: 0 }));
  for (const { probabilities, answer } of outcomes) {
    const confidence = Math.max(...probabilities);
    const bin = bins[Math.min(BINS - 1, Math.floor(confidence * BINS))];
    if (!bin) continue;
    bin.confidence += confidence;
    if (best(probabilities) === answer) bin.right += 1;
  }
  return bins.reduce((sum, { confidence, right }) => sum + Math.abs(confidence - right), 0) / outcomes.length;
}

/** The temperature at which the right answers are most likely. */
export function fittedTemperature(outcomes: readonly Outcome[]): number {
  const loss = (temperature: number): number =>
    mean(outcomes.map((outcome) => -Math.log(at(temperature, outcome).probabilities[outcome.answer] ?? LEAST)));
  return TEMPERATURES.reduce((least, next) => (loss(next) < loss(least) ? next : least), 1);
}

/** The same outcome at another temperature. */
export function at(temperature: number, { probabilities, answer }: Outcome): Outcome {
  const weights = probabilities.map((p) => Math.max(p, LEAST) ** (1 / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return { probabilities: weights.map((weight) => weight / total), answer };
}
