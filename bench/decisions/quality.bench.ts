/**
 * How right a model's decisions are, for any model and any file of questions (questions.ts says in which form).
 *
 *   node dist/bench/decisions/quality.bench.js [MODEL.gguf QUESTIONS.jsonl RESULT_NAME]
 *
 * Without arguments: the seedling on the questions kept from its training.
 */
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Asker } from './asker.js';
import { keep, type Row } from '../support/results.js';
import {
  accuracy,
  at,
  best,
  brier,
  calibrationError,
  fittedTemperature,
  mean,
  withinOne,
  type Outcome,
} from './measures.js';
import { asked, readCases, reversed, type Asked } from './questions.js';

const SEEDLING = fileURLToPath(new URL('../../../engine/assets/seedling.gguf', import.meta.url));
const HELD_OUT = fileURLToPath(new URL('../../../bench/seedling/held-out.jsonl', import.meta.url));
const WARM_UP = 5;

const [file = SEEDLING, questions = HELD_OUT, name = 'decision-quality'] = process.argv.slice(2);

interface Answered extends Outcome {
  readonly type: string;
  readonly topic: string;
  readonly labelMass: number;
  /** Whether the answer changed with the options reversed. Choices only. */
  readonly flipped?: boolean;
}

const asker = await Asker.open(file);
const ask = (
  input: string,
  all: readonly Asked[],
): Promise<{ probabilities: readonly number[]; labelMass: number }[]> =>
  asker.ask(
    input,
    all.map(({ question }) => question),
  );

const cases = readCases(await readFile(questions, 'utf8'));
for (const one of cases.slice(0, WARM_UP)) await ask(one.input, one.questions.map(asked));
const answered: Answered[] = [];
let seconds = 0;
for (const { topic = 'all', input, questions: known } of cases) {
  const all = known.map(asked);
  const from = performance.now();
  const answers = await ask(input, all);
  seconds += (performance.now() - from) / 1000;
  const choices = all.filter(({ question }) => question.type === 'choice');
  const turned = choices.length > 0 ? await ask(input, choices.map(reversed)) : [];
  all.forEach((one, index) => {
    const { probabilities = [], labelMass = 0 } = answers[index] ?? {};
    const choice = choices.indexOf(one);
    const back = turned[choice]?.probabilities;
    const flipped = back && best(probabilities) !== probabilities.length - 1 - best(back);
    answered.push({
      type: one.question.type,
      topic,
      probabilities,
      labelMass,
      answer: one.answer,
      ...(flipped !== undefined && { flipped }),
    });
  });
}
await asker.close();

function row(what: string, some: readonly Answered[]): Row {
  const flips = some.flatMap(({ flipped }) => (flipped === undefined ? [] : [flipped ? 1 : 0]));
  // Fitted on one half, tested on the other.
  const half = <T>(list: readonly T[], which: number): T[] => list.filter((_, index) => index % 2 === which);
  const temperature = fittedTemperature(half(some, 0));
  return {
    what,
    questions: some.length,
    accuracy: accuracy(some),
    'within one level': what === 'score' ? withinOne(some) : '',
    Brier: brier(some),
    'calibration error': calibrationError(some),
    'label mass': mean(some.map(({ labelMass }) => labelMass)),
    'order flips': flips.length === 0 ? '' : mean(flips),
    'fitted temperature': temperature,
    'calibration error at it': calibrationError(half(some, 1).map((one) => at(temperature, one))),
  };
}

const types = ['yes_no', 'choice', 'score'];
const topics = [...new Set(answered.map(({ topic }) => topic))];
await keep(name, {
  title: `Decisions of ${basename(file)} on ${basename(questions)}`,
  about: [
    `${answered.length} questions about ${cases.length} inputs, rendered and scored as the server does it (isolated, temperature 1), through the engine process over its protocol on one compute thread: ${(answered.length / seconds).toFixed(0)} questions a second.`,
    'Brier: over all answers, 0 is perfect, 2 certain and wrong. Calibration error: expected, ten bins. Order flips: share of choices whose answer was another with the options reversed. The temperature is fitted on every second question and tried on the others.',
  ],
  rows: [
    ...types
      .map((type) =>
        row(
          type,
          answered.filter((one) => one.type === type),
        ),
      )
      .filter(({ questions: count }) => count !== 0),
    row('all', answered),
    ...(topics.length > 1
      ? topics.map((topic) =>
          row(
            `topic ${topic}`,
            answered.filter((one) => one.topic === topic),
          ),
        )
      : []),
  ],
});
