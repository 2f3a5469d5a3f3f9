/** What both decision routes answer, as JSON text: an object would move integer-like names to the front and lose `__proto__`. */
import { PROMPT_FORMAT_VERSION } from './common-schema.js';
import type { DecisionParams, QuestionParams } from './requests.js';

/** One question's result: probabilities in the order of its answers. */
export interface QuestionResult {
  readonly probabilities: Float64Array;
  readonly labelMass: number;
}

/** Tokens of all prompts, the input counted once per question. */
export interface DecisionUsage {
  readonly promptTokens: number;
}

/** The answer of POST /decisions. `results` are parallel to the questions; throws when they are not (an engine fault). */
export function decisionAnswer(
  params: DecisionParams,
  results: readonly QuestionResult[],
  usage: DecisionUsage,
): string {
  return objectText([
    ['object', '"decisions"'],
    ['model', JSON.stringify(params.model)],
    ['prompt_format_version', String(PROMPT_FORMAT_VERSION)],
    ['answers', answersText(params, results, decisionEntries)],
    [
      'usage',
      JSON.stringify({ prompt_tokens: usage.promptTokens, completion_tokens: 0, total_tokens: usage.promptTokens }),
    ],
  ]);
}

/** The answer of POST /systemone. `id` is a fresh UUID. */
export function systemOneAnswer(
  params: DecisionParams,
  results: readonly QuestionResult[],
  usage: DecisionUsage,
  id: string,
): string {
  return objectText([
    ['id', JSON.stringify(id)],
    ['model', JSON.stringify(params.model)],
    ['answers', answersText(params, results, systemOneEntries)],
    ['usage', JSON.stringify({ input_tokens: usage.promptTokens, output_tokens: 0 })],
  ]);
}

/** A name and the JSON text of its value. */
type NamedText = readonly [name: string, text: string];

type EntriesOf = (question: QuestionParams, result: QuestionResult) => NamedText[];

function decisionEntries(question: QuestionParams, { probabilities, labelMass }: QuestionResult): NamedText[] {
  const entries: NamedText[] = [
    ['type', JSON.stringify(question.type)],
    ['probabilities', probabilitiesText(question, probabilities)],
    // A share of a distribution whose sum is rounded can come out a hair above 1.
    ['label_mass', numberText(Math.min(1, labelMass))],
  ];
  if (question.type === 'choice') entries.push(['choice', choiceText(question, probabilities)]);
  if (question.type === 'score') entries.push(['score', numberText(scoreOf(probabilities))]);
  return entries;
}

function systemOneEntries(question: QuestionParams, { probabilities }: QuestionResult): NamedText[] {
  switch (question.type) {
    case 'yes_no':
      return [
        ['type', '"noul"'],
        ['noul', numberText(probabilities[0] ?? NaN)],
      ];
    case 'choice':
      return [
        ['type', '"choice"'],
        ['choice', choiceText(question, probabilities)],
        ['confidence', numberText(choiceConfidence(probabilities))],
        ['probabilities', probabilitiesText(question, probabilities)],
      ];
    case 'score': {
      const legend = question.legend ?? question.answers.map((level) => JSON.stringify(level));
      return [
        ['type', '"score"'],
        ['score', numberText(scoreOf(probabilities))],
        ['confidence', numberText(scoreConfidence(probabilities))],
        ['probabilities', probabilitiesText(question, probabilities)],
        ['legend', objectText(legend.map((level, i): NamedText => [String(i), level]))],
      ];
    }
  }
}

function answersText(params: DecisionParams, results: readonly QuestionResult[], entriesOf: EntriesOf): string {
  if (results.length !== params.questions.length) throw new RangeError('as many results as questions');
  return objectText(
    params.questions.map((question, i): NamedText => {
      const result = results[i];
      if (result?.probabilities.length !== question.answers.length) throw new RangeError('a probability per answer');
      return [question.id, objectText(entriesOf(question, result))];
    }),
  );
}

function probabilitiesText({ type, answers }: QuestionParams, probabilities: Float64Array): string {
  return objectText(
    answers.map((answer, i): NamedText => [type === 'score' ? String(i) : answer, numberText(probabilities[i] ?? NaN)]),
  );
}

function choiceText({ answers }: QuestionParams, probabilities: Float64Array): string {
  return JSON.stringify(answers[modeOf(probabilities)]);
}

function objectText(entries: readonly NamedText[]): string {
  return `{${entries.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(',')}}`;
}

function numberText(value: number): string {
  if (!Number.isFinite(value)) throw new RangeError('a finite number');
  return JSON.stringify(value);
}

/** Index of the most probable answer, the first of equals. */
function modeOf(probabilities: Float64Array): number {
  return probabilities.indexOf(Math.max(...probabilities));
}

/** The probability-weighted index. */
function scoreOf(probabilities: Float64Array): number {
  return probabilities.reduce((sum, p, i) => sum + p * i, 0);
}

/** How far the largest of n probabilities stands above an even spread: 0 when even, 1 when certain. */
export function choiceConfidence(probabilities: Float64Array): number {
  const n = probabilities.length;
  return Math.min(1, Math.max(0, (n * Math.max(...probabilities) - 1) / (n - 1)));
}

/** One minus the mean distance from the mode, in units of an even spread's mean distance from the middle; not below 0. */
export function scoreConfidence(probabilities: Float64Array): number {
  const n = probabilities.length;
  const mode = modeOf(probabilities);
  const distance = probabilities.reduce((sum, p, i) => sum + p * Math.abs(i - mode), 0);
  const even = probabilities.reduce((sum, _, i) => sum + Math.abs(i - (n - 1) / 2), 0) / n;
  return Math.max(0, 1 - distance / even);
}
