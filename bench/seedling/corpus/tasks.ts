/** Small jobs with one right answer: sums, copies, lists, letters' case, reading, JSON. */
import type { Draw } from './draw.js';
import { capitalised, color, item, madeUp, person, place } from './names.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.tasks;

export interface Task {
  readonly topic: string;
  readonly ask: string;
  readonly reply: string;
  /** What a thought before the reply says. */
  readonly thought?: string;
  readonly json?: boolean;
}

/** Sums and differences to 99, products to 9 times 9. */
export function arithmetic(draw: Draw): Task {
  const kind = draw.int(0, 2);
  let [a, b] = kind === 2 ? [draw.int(1, 9), draw.int(1, 9)] : [draw.int(0, 60), draw.int(0, 39)];
  if (kind === 1 && b > a) [a, b] = [b, a];
  const result = kind === 0 ? a + b : kind === 1 ? a - b : a * b;
  const sign = ['+', '-', kind === 2 && draw.chance(0.5) ? 'x' : '*'][kind] ?? '+';
  const words = ['plus', 'minus', 'times'][kind] ?? '';
  const said = draw.chance(0.25) ? `${a} ${words} ${b}` : draw.chance(0.2) ? `${a}${sign}${b}` : `${a} ${sign} ${b}`;
  const answer = `${a} ${sign === 'x' ? '*' : sign} ${b} = ${result}`;
  return {
    topic: 'arithmetic',
    ask: draw.pick(wordings.sum).replace('{s}', said),
    reply: `${answer}.`,
    thought: steps(kind, a, b, result),
  };
}

/** Tens and ones apart. */
function steps(kind: number, a: number, b: number, result: number): string {
  if (kind === 2) return `${b} times ${a} is ${result}.`;
  const tens = b - (b % 10);
  const half = kind === 0 ? a + tens : a - tens;
  const sign = kind === 0 ? '+' : '-';
  return `${a} ${sign} ${tens} = ${half}, ${half} ${sign} ${b % 10} = ${result}.`;
}

export function copy(draw: Draw, most = 6): Task {
  const text = Array.from({ length: draw.int(1, most) }, () =>
    draw.any([item, color, person, place, madeUp, (one: Draw) => String(one.int(0, 9999))])(draw),
  ).join(' ');
  return { topic: 'copy', ask: draw.pick(wordings.repeat).replace('{t}', text), reply: text };
}

const NUMBER_WORDS = ['zero', 'one', 'two', 'three', 'four', 'five'];

export function list(draw: Draw): Task {
  const { name, members } = draw.any(wordings.groups);
  const count = draw.int(2, 5);
  const said = draw.chance(0.6) ? (NUMBER_WORDS[count] ?? '') : String(count);
  const reply = members
    .slice(0, count)
    .map((member, at) => `${at + 1}. ${member}`)
    .join('\n');
  return { topic: 'list', ask: draw.pick(wordings.list).replace('{n}', said).replace('{g}', name), reply };
}

export function counting(draw: Draw): Task {
  const from = draw.int(1, 9);
  const to = from + draw.int(2, 7);
  const reply = Array.from({ length: to - from + 1 }, (_, at) => from + at).join(', ');
  return {
    topic: 'counting',
    ask: draw.pick(wordings.count).replace('{a}', String(from)).replace('{b}', String(to)),
    reply,
  };
}

const CASED =
  'hello world yes no red blue green dog cat house tree water open closed queue seat model token good morning thank you light door book time please stop go left right one two three list name'.split(
    ' ',
  );

export function letters(draw: Draw): Task {
  const words = draw.some(CASED, draw.int(1, 3)).join(' ');
  const up = draw.chance(0.5);
  const text = up ? words : words.toUpperCase();
  return {
    topic: 'letters',
    ask: draw.pick(up ? wordings.upper : wordings.lower).replace('{t}', text),
    reply: up ? words.toUpperCase() : words,
  };
}

export function reading(draw: Draw): Task {
  const { ask, reply } = draw.pick(wordings.reading);
  const values: Readonly<Record<string, string>> = { n: person(draw), p: place(draw), i: item(draw), c: color(draw) };
  const put = (text: string): string => text.replace(/\{(\w)\}/g, (_, slot: string) => values[slot] ?? '');
  return { topic: 'reading', ask: put(ask), reply: put(reply) };
}

/** Fields of a sentence as an object; the server's JSON mode holds the form, the model the meaning. */
export function json(draw: Draw): Task {
  const age = draw.int(18, 90);
  const fields = draw.any<readonly (readonly [string, string | number, string])[]>([
    [
      ['name', person(draw), '{name}'],
      ['age', age, 'is {age} years old.'],
    ],
    [
      ['name', person(draw), '{name}'],
      ['city', place(draw), 'lives in {city}.'],
    ],
    [
      ['item', item(draw), 'The {item}'],
      ['color', color(draw), 'is {color}.'],
    ],
    [
      ['item', item(draw), 'The {item}'],
      ['price', draw.int(2, 300), 'costs {price} dollars.'],
    ],
    [
      ['city', place(draw), '{city}'],
      ['temperature', draw.int(1, 35), 'has {temperature} degrees.'],
    ],
  ]);
  const text = fields.map(([key, value, form]) => form.replace(`{${key}}`, String(value))).join(' ');
  const keys = fields.map(([key]) => key).join(' and ');
  const reply = `{${fields.map(([key, value]) => `"${key}": ${JSON.stringify(value)}`).join(', ')}}`;
  return {
    topic: 'json',
    ask: draw.pick(wordings.asJson).replace('{k}', keys).replace('{t}', capitalised(text)),
    reply,
    json: true,
  };
}

export function jsonList(draw: Draw): Task {
  const { name, members } = draw.any(wordings.groups.filter((group) => !group.name.includes(' ')));
  const count = draw.int(2, 4);
  const ask = draw
    .pick(wordings.jsonLists)
    .replace('{n}', NUMBER_WORDS[count] ?? '')
    .replace('{g}', name);
  return {
    topic: 'json',
    ask,
    reply: `{"${name}": [${members
      .slice(0, count)
      .map((one) => `"${one}"`)
      .join(', ')}]}`,
    json: true,
  };
}
