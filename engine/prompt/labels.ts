import type { Vocabulary } from './tokens.js';

/** The labels that stand for a question's answers, one token each. Texts and tokens are parallel. */
export interface Labels {
  readonly yesNo: Uint32Array;
  readonly letters: Uint32Array;
  readonly digits: Uint32Array;
}

export const YES_NO = ['yes', 'no'] as const;
export const LETTERS: readonly string[] = Array.from('ABCDEFGHIJKLMNOPQRSTUVWXYZ');
export const DIGITS: readonly string[] = Array.from('0123456789');

export type QuestionType = 'yes_no' | 'choice' | 'score';

/**
 * Finds each label's token after the template's tail and checks that a label is exactly one token there, that it leaves the
 * tail's own tokens as they are, and that no two share one. `problem` is one line for the operator.
 */
export function verifyLabels(
  vocabulary: Vocabulary,
  tail: string,
): { readonly kind: 'ok'; readonly labels: Labels } | { readonly kind: 'bad'; readonly problem: string } {
  const before = vocabulary.tokenize(tail, true);
  const seen = new Set<number>();
  for (const label of [...YES_NO, ...LETTERS, ...DIGITS]) {
    const after = vocabulary.tokenize(tail + label, true);
    const token = after[before.length];
    if (token === undefined || after.length !== before.length + 1 || before.some((own, at) => after[at] !== own))
      return { kind: 'bad', problem: `the label "${label}" is not one token after the chat template` };
    if (seen.has(token)) return { kind: 'bad', problem: `the label "${label}" shares its token with another label` };
    seen.add(token);
  }
  const tokens = Uint32Array.from(seen);
  const letters = YES_NO.length;
  const digits = letters + LETTERS.length;
  return {
    kind: 'ok',
    labels: { yesNo: tokens.slice(0, letters), letters: tokens.slice(letters, digits), digits: tokens.slice(digits) },
  };
}

/** The tokens of a question's labels, in its answers' order. */
export function labelTokens(labels: Labels, type: QuestionType, answers: number): Uint32Array {
  if (type === 'yes_no') return labels.yesNo;
  return (type === 'choice' ? labels.letters : labels.digits).slice(0, answers);
}

/** The texts of a question's labels, in its answers' order. */
export function labelTexts(type: QuestionType, answers: number): readonly string[] {
  if (type === 'yes_no') return YES_NO;
  return (type === 'choice' ? LETTERS : DIGITS).slice(0, answers);
}
