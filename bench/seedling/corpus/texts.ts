/** Which words a text has, and what a text with words that deny is about. */
import { asking, choiceOf, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { Asked, DecisionExample } from './example.js';
import { color, colors, filled, items, people, place } from './names.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.sentences;

/** Whether and which words a text has. */
export function mentions(draw: Draw): DecisionExample {
  const input = Array.from({ length: draw.int(1, 3) }, () => filled(draw, draw.pick(wordings.sentences))).join(' ');
  const has = (word: string): boolean =>
    input
      .toLowerCase()
      .split(/[^\p{L}\d]+/u)
      .includes(word.toLowerCase());
  const pool = [...people(draw, 5), ...items(draw, 5), ...colors(draw, 3), place(draw), place(draw)];
  const inside = draw.shuffle([
    ...new Set(input.split(/[^\p{L}\d]+/u).filter((word) => word.length > 3 && !/^\d/.test(word))),
  ]);
  const outside = draw.shuffle(pool.filter((word) => !has(word)));
  const questions: Asked[] = [];
  for (let at = 0; at < asking(draw, 1, 2); at++) {
    const [word = 'the', absent = 'zebra'] = [inside[2 * at] ?? inside[0], outside[at]];
    questions.push(yesNo(draw, draw.pick(wordings.isMentioned).replace('{w}', word), true));
    questions.push(yesNo(draw, draw.pick(wordings.isMentioned).replace('{w}', absent), false));
    const which = draw.pick(wordings.whichWord);
    const right = inside[2 * at + 1] ?? inside[0] ?? 'the';
    questions.push(choiceOf(draw, which, right, outside.slice(1, 8)));
  }
  return { kind: 'decision', topic: 'mentions', input, questions };
}

/** A text of one colour told from others, with words that deny. */
export function denial(draw: Draw): DecisionExample {
  const [thing = '', other = ''] = items(draw, 2);
  const [right = '', wrong = ''] = [color(draw), ...colors(draw, 3)].filter((one, at, all) => all.indexOf(one) === at);
  const form = draw.pick(wordings.denials);
  const input = `${form.replace('{i}', thing).replace('{w}', wrong).replace('{r}', right)}${draw.chance(0.3) ? ` There is no ${other}.` : ''}`;
  const questions = [
    yesNo(draw, `Is the ${thing} ${right}?`, true),
    yesNo(draw, `Is the ${thing} ${wrong}?`, false),
    choiceOf(draw, `Which color does the ${thing} have?`, right, [
      wrong,
      ...colors(draw, 4).filter((one) => one !== right && one !== wrong),
    ]),
  ];
  return { kind: 'decision', topic: 'denial', input, questions: draw.some(questions, asking(draw, 2, 3)) };
}
