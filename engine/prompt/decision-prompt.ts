/**
 * The decision prompt, format version 1. Rendered once per model:
 *
 *     template head | preface | INPUT || gap | QUESTION, answers, labels | template tail
 *
 * The part left of || is tokenized once per request and the part right of it once per question, separately, so that the
 * input's tokens, and later its prefill, do not depend on the question.
 */
import type { ScoreQuestion } from '../protocol/jobs.js';
import { readCalibration, type Calibration } from './calibration.js';
import { fewestTokens, type PromptParts } from './chat-prompt.js';
import type { SpecialTexts } from './data-text.js';
import { labelTokens, verifyLabels, type Labels } from './labels.js';
import { GAP, LAST_WORDS, PREFACE, questionText, type Question } from './question-text.js';
import { tokenizeParts, tokenizePrompt, type Vocabulary } from './tokens.js';

/** Tokens that one question's prompt may have: head, input, question, tail. */
export const DECISION_PROMPT_TOKENS = 8185;

const INPUT_MARK = '\ue000';
const QUESTION_MARK = '\ue001';

export type DecisionTokens =
  | {
      readonly kind: 'tokens';
      readonly input: Uint32Array;
      readonly questions: readonly ScoreQuestion[];
    }
  /** The first question whose prompt exceeds {@link DECISION_PROMPT_TOKENS}. `exact` false: a lower bound. */
  | { readonly kind: 'too-long'; readonly question: number; readonly tokens: number; readonly exact: boolean };

/** The decision prompt of one model, its labels checked. Made by {@link makeDecisionPrompt}. */
export class DecisionPrompt {
  readonly labels: Labels;
  readonly #vocabulary: Vocabulary;
  readonly #specials: SpecialTexts;
  readonly #frame: Frame;
  readonly #calibration: Calibration;

  constructor(parts: PromptParts, frame: Frame, labels: Labels, calibration: Calibration) {
    this.labels = labels;
    this.#calibration = calibration;
    this.#vocabulary = parts.vocabulary;
    this.#specials = parts.specials;
    this.#frame = frame;
  }

  /** Tokens of the input once and of each question, with its labels. Caller text is data throughout. */
  tokenize(input: string, questions: readonly Question[]): DecisionTokens {
    const fewest = fewestTokens(this.#vocabulary, input);
    if (fewest > DECISION_PROMPT_TOKENS) return { kind: 'too-long', question: 0, tokens: fewest, exact: false };
    const [first = '', ...rest] = this.#specials.breakUp(input);
    const head = tokenizePrompt(this.#vocabulary, [this.#frame.head + first, ...rest]);
    const asked: ScoreQuestion[] = [];
    for (const [index, question] of questions.entries()) {
      const tail = this.#tail(questionText(question));
      const tokens = head.length + tail.length;
      if (tokens > DECISION_PROMPT_TOKENS) return { kind: 'too-long', question: index, tokens, exact: true };
      const labels = labelTokens(this.labels, question.type, question.answers.length);
      asked.push({ tail, labels, temperature: this.#calibration[question.type] });
    }
    return { kind: 'tokens', input: head, questions: asked };
  }

  #tail(question: string): Uint32Array {
    const pieces = [...this.#specials.breakUp(question)];
    pieces[0] = this.#frame.between + (pieces[0] ?? '');
    pieces.push((pieces.pop() ?? '') + this.#frame.tail);
    return tokenizeParts(this.#vocabulary, pieces);
  }
}

/**
 * Renders the template and checks the labels after it. `problem` is one line for the operator: the model cannot decide.
 */
export function makeDecisionPrompt(
  parts: PromptParts,
): { readonly kind: 'ok'; readonly prompt: DecisionPrompt } | { readonly kind: 'bad'; readonly problem: string } {
  const frame = renderFrame(parts);
  if (frame === undefined) return { kind: 'bad', problem: 'the chat template does not render the decision prompt' };
  const verified = verifyLabels(parts.vocabulary, LAST_WORDS + frame.tail);
  if (verified.kind === 'bad') return verified;
  const read = readCalibration(parts.vocabulary.calibration);
  if (read.kind === 'bad') return read;
  return { kind: 'ok', prompt: new DecisionPrompt(parts, frame, verified.labels, read.calibration) };
}

/** The template's text before the input, between it and the question, and after the question. */
interface Frame {
  readonly head: string;
  readonly between: string;
  readonly tail: string;
}

function renderFrame({ template, thoughts }: PromptParts): Frame | undefined {
  const content = PREFACE + INPUT_MARK + GAP + QUESTION_MARK;
  const rendered = template.render(
    { messages: [{ role: 'user', content }] },
    { addGenerationPrompt: true, reasoningEffort: 'none' },
  );
  if (rendered.kind === 'failed') return undefined;
  const [head, rest, more] = rendered.text.split(INPUT_MARK);
  const [between, tail, further] = (rest ?? '').split(QUESTION_MARK);
  if (head === undefined || between === undefined || tail === undefined) return undefined;
  if (more !== undefined || further !== undefined) return undefined;
  // Labels must come after a thought that the template has begun.
  return { head, between, tail: thoughts?.closed(tail) ?? tail };
}
