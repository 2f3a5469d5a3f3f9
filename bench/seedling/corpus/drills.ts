/**
 * Drills: many small look-ups in one reply, so that each token of it teaches how to find something in the prompt. Decisions ask
 * the same, but with one token a question.
 */
import { LETTERS, YES_NO } from '../../../engine/prompt/labels.js';
import type { Draw } from './draw.js';
import { colors, distinct, item, items, madeUp, people, person, place } from './names.js';
import type { Task } from './tasks.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.drills;

/** One of the drills. */
export function drill(draw: Draw): Task {
  return draw.any([labels, labels, values, within])(draw);
}

function words(draw: Draw, count: number): string[] {
  const make = draw.any([person, item, place, madeUp]);
  const mixed = (): string => draw.any([person, item, place, madeUp])(draw);
  return draw.chance(0.5) ? distinct(count, mixed) : distinct(Math.min(count, 5), () => make(draw));
}

/** Options as decisions have them, and the labels of some. */
function labels(draw: Draw): Task {
  const options = words(draw, draw.int(2, 8));
  const asked = draw.shuffle(options);
  const lines = options.map((option, at) => `${LETTERS[at] ?? ''}) ${option}`).join('\n');
  const ask = `${lines}\n${draw.pick(wordings.labels).replace('{q}', asked.join(', '))}`;
  return { topic: 'drill', ask, reply: asked.map((option) => LETTERS[options.indexOf(option)]).join('\n') };
}

/** Things and their colors, or people and their things. */
function values(draw: Draw): Task {
  const keys = draw.chance(0.5) ? items(draw, 5) : people(draw, 5);
  const held = [...colors(draw, 3), ...distinct(3, () => madeUp(draw))].slice(0, keys.length);
  const pairs = draw.shuffle(keys.slice(0, held.length).map((key, at) => [key, held[at] ?? ''] as const));
  const form = draw.any(['{k}: {v}', '{k}={v}', 'The {k} is {v}.', '{k} has {v}.']);
  const lines = pairs
    .map(([key, value]) => form.replace('{k}', key).replace('{v}', value))
    .join(draw.any([' ', '\n', ', ']));
  const asked = draw.shuffle(pairs);
  const ask = `${lines}\n${draw.pick(wordings.values).replace('{q}', asked.map(([key]) => key).join(', '))}`;
  return { topic: 'drill', ask, reply: asked.map(([, value]) => value).join(', ') };
}

/** Which words a list has. */
function within(draw: Draw): Task {
  const all = words(draw, 10);
  const list = all.filter(() => draw.chance(0.5));
  const ask = `${list.join(', ')}\n${draw.pick(wordings.within).replace('{q}', all.join(', '))}`;
  return { topic: 'drill', ask, reply: all.map((word) => YES_NO[list.includes(word) ? 0 : 1]).join('\n') };
}
