/** Text that no question is about, to put a decision's input far from its question. */
import type { Draw } from './draw.js';
import type { DecisionExample } from './example.js';
import { WORDINGS } from './wordings.js';

const TOKENS_A_SENTENCE = 9;

/** Topics whose questions look at the whole text. */
const WHOLE = new Set(['mentions', 'count']);

export function inFiller(draw: Draw, tokens: number, make: (draw: Draw) => DecisionExample): DecisionExample {
  let example = make(draw);
  // Ends: most topics are not of those.
  while (WHOLE.has(example.topic)) example = make(draw);
  const sentences = Array.from({ length: Math.ceil(tokens / TOKENS_A_SENTENCE) }, () => draw.pick(WORDINGS.filler));
  const before = draw.int(0, sentences.length);
  const input = [sentences.slice(0, before).join(' '), example.input, sentences.slice(before).join(' ')];
  return { ...example, input: input.filter((part) => part !== '').join('\n\n') };
}
