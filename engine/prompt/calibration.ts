import type { QuestionType } from './labels.js';

/**
 * What a model's label log-probabilities are divided by before they become probabilities, by type of question (temperature
 * scaling: Guo et al., On Calibration of Modern Neural Networks, 2017). 1: they are taken as they are. The order of the
 * answers is the same with any.
 */
export type Calibration = Readonly<Record<QuestionType, number>>;

/** Where a GGUF has it: `ra_sidecar.calibration.yes_no` and so on, each a float32; what is not there is 1. */
export const CALIBRATION_KEY = 'ra_sidecar.calibration';

/** As of a request's own temperature (docs/contract.md#post-decisions). */
const MAX_TEMPERATURE = 100;

const TYPES: readonly QuestionType[] = ['yes_no', 'choice', 'score'];

/** From what the file has under {@link CALIBRATION_KEY}; undefined: nothing. `problem` is one line for the operator. */
export function readCalibration(
  found: unknown,
): { readonly kind: 'ok'; readonly calibration: Calibration } | { readonly kind: 'bad'; readonly problem: string } {
  const calibration: Record<QuestionType, number> = { yes_no: 1, choice: 1, score: 1 };
  const values = typeof found === 'object' && found !== null ? (found as Readonly<Record<string, unknown>>) : {};
  for (const type of TYPES) {
    const value = values[type] ?? 1;
    if (typeof value !== 'number' || !(value > 0 && value <= MAX_TEMPERATURE)) {
      return {
        kind: 'bad',
        problem: `${CALIBRATION_KEY}.${type} in the file is no number above 0 and up to ${MAX_TEMPERATURE}`,
      };
    }
    calibration[type] = value;
  }
  return { kind: 'ok', calibration };
}
