import { choiceOf, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { DecisionExample } from './example.js';
import { items } from './names.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.reviews;

/** A review and its stars. */
export function review(draw: Draw): DecisionExample {
  const level = draw.int(0, 4);
  const [thing = ''] = items(draw, 1);
  const input = draw.pick(wordings.reviews[level] ?? []).replace('{i}', thing);
  const questions = [score(draw.pick(wordings.ratingAsked), draw.pick(wordings.ratings), level)];
  if (level !== 2) questions.push(yesNo(draw, draw.pick(wordings.isPositive), level > 2));
  if (level !== 2)
    questions.push(
      choiceOf(
        draw,
        draw.pick(wordings.whichSentiment),
        level > 2 ? 'positive' : 'negative',
        ['neutral', level > 2 ? 'negative' : 'positive'],
        2,
      ),
    );
  return { kind: 'decision', topic: 'review', input, questions };
}
