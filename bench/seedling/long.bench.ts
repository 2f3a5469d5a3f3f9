/**
 * The quality of the embedded model’s decisions if the input is within irrelevant text. node
 * dist/bench/seedling/long.bench.js [MODEL.gguf RESULT_NAME]
 */
import { fileURLToPath } from 'node:url';
import { longDecisionAt } from './mix.js';
import { Asker } from '../decisions/asker.js';
import { accuracy, best, brier, mean, type Outcome } from '../decisions/measures.js';
import { keep, type Row } from '../support/results.js';

const DEFAULT = fileURLToPath(new URL('../../../engine/assets/seedling.gguf', import.meta.url));
const SEED = 23;
const INPUTS = 10;
/** Tokens of filler, about. */
const FILLER = [0, 250, 500, 1000, 2000, 3500, 5000];

const [file = DEFAULT, name = 'seedling-long'] = process.argv.slice(2);
const asker = await Asker.open(file);
const rows: Row[] = [];
for (const filler of FILLER) {
  const lengths: number[] = [];
  const outcomes: (Outcome & { readonly type: string })[] = [];
  for (let at = 0; at < INPUTS; at++) {
    const { input, questions } = longDecisionAt(SEED, at, 'held', filler);
    lengths.push(asker.lengthOf(input));
    const answers = await asker.ask(input, questions);
    questions.forEach(({ type, answer }, index) =>
      outcomes.push({ type, answer, probabilities: answers[index]?.probabilities ?? [] }),
    );
  }
  const of = (type: string): readonly Outcome[] => outcomes.filter((one) => one.type === type);
  rows.push({
    'tokens of the input': mean(lengths),
    questions: outcomes.length,
    'yes/no right': accuracy(of('yes_no')),
    'choice right': accuracy(of('choice')),
    'score right': accuracy(of('score')),
    Brier: brier(outcomes),
    'answered yes': mean(of('yes_no').map(({ probabilities }) => (best(probabilities) === 0 ? 1 : 0))),
  });
}
await asker.close();
await keep(name, {
  title: 'The seedling on long inputs',
  about: [
    `${INPUTS} inputs kept from training, each put at a random place of filler: sentences that no question is about. Wordings and names as in decision-quality, the same inputs in every row.`,
  ],
  rows,
});
