import { choiceOf, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { DecisionExample } from './example.js';
import { items } from './names.js';

const RATING_ASKED = [
  'How good is the review?',
  'How happy is the reviewer?',
  'Rate the review.',
  'What rating fits the review?',
  'How positive is the review?',
];
const RATINGS = [
  ['very bad', 'bad', 'mixed', 'good', 'very good'],
  ['terrible', 'poor', 'average', 'good', 'excellent'],
  ['1 star', '2 stars', '3 stars', '4 stars', '5 stars'],
  ['hated it', 'disliked it', 'neutral', 'liked it', 'loved it'],
  ['terrible', 'bad', 'mixed', 'good', 'excellent'],
];
const REVIEWS: readonly (readonly string[])[] = [
  [
    'This {i} is terrible, the worst ever.',
    'I hate this {i}. Awful!',
    'Terrible {i}, it broke at once.',
    'The worst {i} that I ever had.',
    'A terrible, awful {i}!',
  ],
  [
    'The {i} is not very good.',
    'The {i} is rather weak and too loud.',
    'I do not like the {i} much.',
    'The {i} is poor for the price.',
    'The {i} is rather poor.',
  ],
  [
    'The {i} is okay.',
    'The {i} is neither good nor bad.',
    'An average {i}.',
    'Some things about the {i} are good, some are bad.',
    'The {i} is okay, an average one.',
  ],
  ['The {i} is good.', 'I like the {i}.', 'A good {i} for the price.', 'The {i} works well.', 'I like it, a good {i}.'],
  [
    'The {i} is excellent, I love it!',
    'The best {i} ever!',
    'Perfect {i}, wonderful!',
    'I love this {i}, it is fantastic!',
    'I love it, the best {i} ever!',
  ],
];

/** A review and its stars. */
export function review(draw: Draw): DecisionExample {
  const level = draw.int(0, 4);
  const [thing = ''] = items(draw, 1);
  const input = draw.pick(REVIEWS[level] ?? []).replace('{i}', thing);
  const questions = [score(draw.pick(RATING_ASKED), draw.pick(RATINGS), level)];
  if (level !== 2)
    questions.push(
      yesNo(
        draw,
        draw.pick([
          'Is the review positive?',
          'Does the reviewer like it?',
          'Is this a good review?',
          'Is the reviewer happy?',
          'Is this review positive?',
        ]),
        level > 2,
      ),
    );
  if (level !== 2)
    questions.push(
      choiceOf(
        draw,
        draw.pick([
          'What is the sentiment?',
          'Which sentiment does the review have?',
          'The review is:',
          'What is the tone?',
          'Which tone does the review have?',
        ]),
        level > 2 ? 'positive' : 'negative',
        ['neutral', level > 2 ? 'negative' : 'positive'],
        2,
      ),
    );
  return { kind: 'decision', topic: 'review', input, questions };
}
