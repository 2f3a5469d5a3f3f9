/** Makes questions of what is known of an input, in many forms. */
import { YES_NO } from '../../../engine/prompt/labels.js';
import type { Draw } from './draw.js';
import type { Asked } from './example.js';

/** A yes/no question; `meanings` are said now and then. */
export function yesNo(draw: Draw, question: string, yes: boolean, meanings?: readonly [string, string]): Asked {
  const said = meanings !== undefined && draw.chance(0.3);
  return {
    type: 'yes_no',
    answers: YES_NO,
    question,
    meanings: said ? meanings : [undefined, undefined],
    answer: yes ? 0 : 1,
  };
}

export interface Option {
  readonly name: string;
  readonly description?: string;
}

/** The right option among up to `most` others, in any order. Names that read alike must not both be given. */
export function choice(draw: Draw, question: string, right: Option, wrong: readonly Option[], most = 7): Asked {
  const others = draw.some(wrong, draw.int(1, Math.min(most, wrong.length)));
  const options = draw.shuffle([right, ...others]);
  const described = draw.chance(0.35);
  return {
    type: 'choice',
    answers: options.map(({ name }) => name),
    question,
    meanings: options.map(({ description }) => (described ? description : undefined)),
    answer: options.indexOf(right),
  };
}

/** The same for plain names. */
export function choiceOf(draw: Draw, question: string, right: string, wrong: readonly string[], most = 7): Asked {
  return choice(
    draw,
    question,
    { name: right },
    wrong.map((name) => ({ name })),
    most,
  );
}

export function score(question: string, levels: readonly string[], answer: number): Asked {
  return { type: 'score', answers: levels, question, meanings: levels.map(() => undefined), answer };
}

/**
 * How many questions to ask of one input. Training asks more than evaluation: each further one costs its own tokens alone, and
 * many look-ups in one text say better what is to be looked for.
 */
export function asking(draw: Draw, held: number, train: number): number {
  return draw.split === 'held' ? held : train;
}

/** Training's plainest choice, for texts where something is to be found: the option is named, only its label is to be found. */
export function picked(draw: Draw, names: readonly string[]): Asked[] {
  if (draw.split === 'held' || names.length < 2) return [];
  const [right = '', ...wrong] = draw.shuffle(names);
  const form = draw.any(['Pick {o}.', 'Which option is {o}?', 'Take {o}.', 'Which label has {o}?']);
  return [choiceOf(draw, form.replace('{o}', right), right, wrong)];
}
