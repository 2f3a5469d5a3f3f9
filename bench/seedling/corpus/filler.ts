/** Text that no question is about, to put a decision's input far from its question. */
import type { Draw } from './draw.js';
import type { DecisionExample } from './example.js';

const FILLER = [
  'The clock in the tower struck again.',
  'A page of the old book was turned.',
  'Rain fell on the roof for an hour.',
  'The river went on past the mill.',
  'Rain fell on the old mill for an hour.',
  'A bird sat on the fence and sang.',
  'The train left on time as always.',
  'Someone swept the long floor.',
  'Two clouds moved over the hill.',
  'Two birds sat on the roof and sang.',
  'The grass by the river was tall.',
  'The path through the wood was dry.',
  'Leaves lay on the stairs.',
  'The wind turned to the north.',
  'The wind moved the leaves on the path.',
];
const TOKENS_A_SENTENCE = 9;

/** Topics whose questions look at the whole text. */
const WHOLE = new Set(['mentions', 'count']);

export function inFiller(draw: Draw, tokens: number, make: (draw: Draw) => DecisionExample): DecisionExample {
  let example = make(draw);
  // Ends: most topics are not of those.
  while (WHOLE.has(example.topic)) example = make(draw);
  const sentences = Array.from({ length: Math.ceil(tokens / TOKENS_A_SENTENCE) }, () => draw.pick(FILLER));
  const before = draw.int(0, sentences.length);
  const input = [sentences.slice(0, before).join(' '), example.input, sentences.slice(before).join(' ')];
  return { ...example, input: input.filter((part) => part !== '').join('\n\n') };
}
