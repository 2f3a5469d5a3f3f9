/** Comparisons, limits and counts. */
import { choiceOf, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { DecisionExample } from './example.js';
import { capitalised, colors, devices, items, people } from './names.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.numbers;

/** Different whole numbers. */
function numbers(draw: Draw, count: number, high: number): number[] {
  const found = new Set<number>();
  while (found.size < count) found.add(draw.int(1, high));
  return [...found];
}

/** What each of `WORDINGS.numbers.comparisons` is about, in their order. */
const COMPARED = [people, items, devices, people] as const;

/** Who has more of something, which costs less, what is hotter. */
export function comparison(draw: Draw): DecisionExample {
  const kind = draw.int(0, COMPARED.length - 1);
  const count = draw.chance(0.6) ? 2 : draw.int(3, 4);
  const subjects = COMPARED[kind]?.(draw, count) ?? [];
  const values = numbers(draw, subjects.length, draw.any([9, 20, 99, 99]));
  const [thing = ''] = items(draw, 1);
  const comparison = wordings.comparisons[kind];
  if (comparison === undefined) throw new RangeError(`comparison ${kind}`);
  const put = (text: string, slots: Readonly<Record<string, string | number>>): string =>
    text.replace(/\{(\w)\}/g, (_, slot: string) => String(slots[slot] ?? thing));
  const input = subjects.map((n, at) => put(comparison.says, { n, v: values[at] ?? 0 })).join(' ');
  const high = draw.chance(0.5);
  const best = values.indexOf(high ? Math.max(...values) : Math.min(...values));
  const { asks, claim: form } = high ? comparison.high : comparison.low;
  const [one = 0, two = 1] = draw.some([...subjects.keys()], 2);
  const claim = put(form, { a: subjects[one] ?? '', b: subjects[two] ?? '' });
  const holds = high ? (values[one] ?? 0) > (values[two] ?? 0) : (values[one] ?? 0) < (values[two] ?? 0);
  const wrong = subjects.filter((_, at) => at !== best);
  const which = choiceOf(draw, put(draw.any(asks), {}), subjects[best] ?? '', wrong, subjects.length);
  const isTrue = draw.pick(wordings.isTrue).replace('{c}', claim).replace('{C}', capitalised(claim));
  const asked = [which, yesNo(draw, isTrue, holds)];
  const value = values[one] ?? 0;
  const bound = Math.max(1, value + draw.int(1, 12) * (draw.chance(0.5) ? 1 : -1));
  const over = draw.chance(0.5);
  const { limit } = over ? comparison.high : comparison.low;
  asked.push(yesNo(draw, put(limit, { a: subjects[one] ?? '', v: bound }), over ? value > bound : value < bound));
  return { kind: 'decision', topic: 'comparison', input, questions: asked };
}

/** A rule with a number, and a case of it. */
export function rule(draw: Draw): DecisionExample {
  const { says, fact, asks } = draw.any(wordings.rules);
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

/** How often a word stands in a list. */
export function count(draw: Draw): DecisionExample {
  const words = draw.chance(0.5) ? colors(draw, 4) : items(draw, 4);
  const [asked = ''] = words;
  const times = draw.int(0, 4);
  const rest = Array.from({ length: draw.int(1, 4) }, () => draw.any(words.slice(1)));
  const list = draw.shuffle([...Array.from({ length: times }, () => asked), ...rest]);
  const question = draw.pick(wordings.howMany).replace('{w}', asked);
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
    yesNo(draw, draw.pick(wordings.isIn).replace('{w}', asked), times > 0),
  ];
  return { kind: 'decision', topic: 'count', input: list.join(draw.any([', ', ' ', '\n'])), questions };
}
