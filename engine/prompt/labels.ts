import type { Vocabulary } from './tokens.js';

/** The labels of one type of question. */
export interface LabelSet {
  /** What ends a prompt in front of a label. */
  readonly tail: string;
  /** One for each label, in order. */
  readonly tokens: Uint32Array;
}

/** The labels that stand for a question's answers. */
export type Labels = Readonly<Record<QuestionType, LabelSet>>;

export const YES_NO = ['yes', 'no'] as const;
export const LETTERS: readonly string[] = Array.from('ABCDEFGHIJKLMNOPQRSTUVWXYZ');
export const DIGITS: readonly string[] = Array.from('0123456789');

export type QuestionType = 'yes_no' | 'choice' | 'score';

const TEXTS: Readonly<Record<QuestionType, readonly string[]>> = { yes_no: YES_NO, choice: LETTERS, score: DIGITS };

/**
 * Finds each label's token after `before` and one of the template's tails, and checks that a label is exactly one token there,
 * that it leaves the tokens in front of it as they are, and that no two labels of a type share one. Each type has the first of
 * `tails`, at least one, after which that is so. Most vocabularies have a token for a word with the space in front of it, and few
 * have one for such a digit, so the space that ends a tail is the tail's or else each label's. `problem` is one line for the
 * operator.
 */
export function verifyLabels(
  vocabulary: Vocabulary,
  before: string,
  tails: readonly string[],
): { readonly kind: 'ok'; readonly labels: Labels } | { readonly kind: 'bad'; readonly problem: string } {
  const places = tails.flatMap((tail) => [
    { tail, lead: '' },
    ...(tail.endsWith(' ') ? [{ tail: tail.slice(0, -1), lead: ' ' }] : []),
  ]);
  const find = (type: QuestionType): LabelSet | string => {
    let found: LabelSet | string = '';
    for (const { tail, lead } of places) {
      const tokens = tokensAfter(vocabulary, before + tail, lead, TEXTS[type]);
      if (typeof tokens !== 'string') return { tail, tokens };
      found = tokens;
    }
    return found;
  };
  const [yesNo, choice, score] = [find('yes_no'), find('choice'), find('score')];
  if (typeof yesNo === 'string') return { kind: 'bad', problem: yesNo };
  if (typeof choice === 'string') return { kind: 'bad', problem: choice };
  if (typeof score === 'string') return { kind: 'bad', problem: score };
  return { kind: 'ok', labels: { yes_no: yesNo, choice, score } };
}

/** What is wrong with the labels, otherwise. */
function tokensAfter(
  vocabulary: Vocabulary,
  tail: string,
  lead: string,
  labels: readonly string[],
): Uint32Array | string {
  const before = vocabulary.tokenize(tail, true);
  const seen = new Set<number>();
  for (const label of labels) {
    const after = vocabulary.tokenize(tail + lead + label, true);
    const token = after[before.length];
    if (token === undefined || after.length !== before.length + 1 || before.some((own, at) => after[at] !== own))
      return `the label "${label}" is not one token after the chat template`;
    if (seen.has(token)) return `the label "${label}" shares its token with another label`;
    seen.add(token);
  }
  return Uint32Array.from(seen);
}

/** The texts of a question's labels, in its answers' order. */
export function labelTexts(type: QuestionType, answers: number): readonly string[] {
  return TEXTS[type].slice(0, answers);
}

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

/** From what the file has under {@link CALIBRATION_KEY}; undefined if nothing is. `problem` is one line for the operator. */
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
