/** Comparisons, limits and counts. */
import { choiceOf, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { Asked, DecisionExample } from './example.js';
import { capitalised, colors, devices, items, people } from './names.js';

/** Different whole numbers. */
function numbers(draw: Draw, count: number, high: number): number[] {
  const found = new Set<number>();
  while (found.size < count) found.add(draw.int(1, high));
  return [...found];
}

/** Who has more of something, which costs less, what is hotter. */
export function comparison(draw: Draw): DecisionExample {
  const kind = draw.int(0, 3);
  const count = draw.chance(0.6) ? 2 : draw.int(3, 4);
  const subjects =
    kind === 0
      ? people(draw, count)
      : kind === 1
        ? items(draw, count)
        : kind === 2
          ? devices(draw, count)
          : people(draw, count);
  const values = numbers(draw, subjects.length, draw.any([9, 20, 99, 99]));
  const [thing = ''] = items(draw, 1);
  const says = [
    (n: string, v: number) => `${n} has ${v} ${thing}s.`,
    (n: string, v: number) => `The ${n} costs ${v} dollars.`,
    (n: string, v: number) => `The ${n} is at ${v} degrees.`,
    (n: string, v: number) => `${n} is ${v} years old.`,
  ][kind];
  const input = subjects.map((name, at) => says?.(name, values[at] ?? 0)).join(' ');
  const high = draw.chance(0.5);
  const best = values.indexOf(high ? Math.max(...values) : Math.min(...values));
  const words = [
    high
      ? ['Who has the most?', 'Who has more?', `Who has the most ${thing}s?`]
      : ['Who has the fewest?', 'Who has fewer?', `Who has the fewest ${thing}s?`],
    high
      ? ['What costs the most?', 'What is the most expensive?', 'Which costs more?']
      : ['What costs the least?', 'What is the cheapest?', 'Which costs less?'],
    high
      ? ['What is the hottest?', 'Which is hotter?', 'Which device is the hottest?']
      : ['What is the coldest?', 'Which is colder?', 'Which device is the coldest?'],
    high
      ? ['Who is the oldest?', 'Who is older?', 'Which person is the oldest?']
      : ['Who is the youngest?', 'Who is younger?', 'Which person is the youngest?'],
  ][kind] ?? [''];
  const than =
    [
      high ? '{a} has more {t}s than {b}' : '{a} has fewer {t}s than {b}',
      high ? 'the {a} costs more than the {b}' : 'the {a} costs less than the {b}',
      high ? 'the {a} is hotter than the {b}' : 'the {a} is colder than the {b}',
      high ? '{a} is older than {b}' : '{a} is younger than {b}',
    ][kind] ?? '';
  const [one = 0, two = 1] = draw.some([...subjects.keys()], 2);
  const claim = than
    .replace('{a}', subjects[one] ?? '')
    .replace('{b}', subjects[two] ?? '')
    .replace('{t}', thing);
  const holds = high ? (values[one] ?? 0) > (values[two] ?? 0) : (values[one] ?? 0) < (values[two] ?? 0);
  const asked: Asked[] = [
    choiceOf(
      draw,
      draw.any(words),
      subjects[best] ?? '',
      subjects.filter((_, at) => at !== best),
      subjects.length,
    ),
    yesNo(
      draw,
      draw
        .pick([
          'Is it true that {c}?',
          'Does it hold that {c}?',
          'Is it right that {c}?',
          '{C}: is that true?',
          '{C}. Is that right?',
        ])
        .replace('{c}', claim)
        .replace('{C}', capitalised(claim)),
      holds,
    ),
    limit(draw, subjects[one] ?? '', kind, values[one] ?? 0),
  ];
  return { kind: 'decision', topic: 'comparison', input, questions: asked };
}

function limit(draw: Draw, subject: string, kind: number, value: number): Asked {
  const bound = Math.max(1, value + draw.int(1, 12) * (draw.chance(0.5) ? 1 : -1));
  const over = draw.chance(0.5);
  const unit = ['', ' dollars', ' degrees', ' years'][kind] ?? '';
  const question =
    kind === 0
      ? `Does ${subject} have ${over ? 'more' : 'fewer'} than ${bound}?`
      : kind === 3
        ? `Is ${subject} ${over ? 'older' : 'younger'} than ${bound}?`
        : `Is the ${subject} ${over ? 'over' : 'under'} ${bound}${unit}?`;
  return yesNo(draw, question, over ? value > bound : value < bound);
}

const RULES = [
  {
    says: 'Refunds are given within {n} days.',
    fact: 'The {i} was bought {v} days ago.',
    asks: ['Is a refund allowed?', 'May the customer have a refund?', 'Is a refund still possible?'],
  },
  {
    says: 'Parcels over {n} kilograms are refused.',
    fact: 'The parcel weighs {v} kilograms.',
    asks: ['Is the parcel accepted?', 'Do we take the parcel?', 'May the parcel be sent?'],
  },
  {
    says: 'The limit is {n} degrees.',
    fact: 'The sensor reads {v} degrees.',
    asks: ['Is the reading within the limit?', 'Is the temperature fine?', 'Is everything within the limit?'],
  },
  {
    says: 'At most {n} people may enter.',
    fact: '{v} people want to enter.',
    asks: ['May all of them enter?', 'Is there room for all?', 'Can everyone enter?'],
  },
];

/** A rule with a number, and a case of it. */
export function rule(draw: Draw): DecisionExample {
  const { says, fact, asks } = draw.any(RULES);
  const bound = draw.int(3, 80);
  const far = draw.int(1, 20);
  const kept = draw.chance(0.5);
  const value = Math.max(1, kept ? bound - far : bound + far);
  const [thing = ''] = items(draw, 1);
  const put = (text: string): string =>
    text.replace('{n}', String(bound)).replace('{v}', String(value)).replace('{i}', thing);
  return {
    kind: 'decision',
    topic: 'rule',
    input: `${put(says)} ${put(fact)}`,
    questions: [yesNo(draw, draw.any(asks), value <= bound, ['the rule is kept', 'the rule is broken'])],
  };
}

const HOW_MANY = [
  'How many times does {w} occur?',
  'How often does {w} occur?',
  'How many {w} are there?',
  'Count the word {w}.',
  'How often does the word {w} occur?',
];

/** How often a word stands in a list. */
export function count(draw: Draw): DecisionExample {
  const words = draw.chance(0.5) ? colors(draw, 4) : items(draw, 4);
  const [asked = ''] = words;
  const times = draw.int(0, 4);
  const rest = Array.from({ length: draw.int(1, 4) }, () => draw.any(words.slice(1)));
  const list = draw.shuffle([...Array.from({ length: times }, () => asked), ...rest]);
  const question = draw.pick(HOW_MANY).replace('{w}', asked);
  const levels = ['0', '1', '2', '3', '4'];
  const questions = [
    draw.chance(0.7)
      ? score(question, levels, times)
      : choiceOf(
          draw,
          question,
          String(times),
          levels.filter((level) => level !== String(times)),
          4,
        ),
    yesNo(
      draw,
      draw
        .pick([
          'Is {w} in the list?',
          'Does {w} occur?',
          'Is there {w} in it?',
          'Does the list have {w}?',
          'Does the list contain {w}?',
        ])
        .replace('{w}', asked),
      times > 0,
    ),
  ];
  return { kind: 'decision', topic: 'count', input: list.join(draw.any([', ', ' ', '\n'])), questions };
}
