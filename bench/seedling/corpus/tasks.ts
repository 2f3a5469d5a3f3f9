/** Small jobs with one right answer: sums, copies, lists, letters' case, reading, JSON. */
import type { Draw } from './draw.js';
import { capitalised, color, item, madeUp, person, place } from './names.js';

export interface Task {
  readonly topic: string;
  readonly ask: string;
  readonly reply: string;
  /** What a thought before the reply says. */
  readonly thought?: string;
  readonly json?: boolean;
}

const SUM = [
  'What is {s}?',
  '{s}',
  '{s} = ?',
  'How much is {s}?',
  'Please compute {s}.',
  'Calculate {s}.',
  'Can you add up {s}?',
  '{s}?',
  'Compute {s}',
  'Please calculate {s}.',
];

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
    ask: draw.pick(SUM).replace('{s}', said),
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

const REPEAT = [
  'Repeat: {t}',
  'Repeat after me: {t}',
  'Say: {t}',
  'Copy this: {t}',
  'Say this: {t}',
  'Echo: {t}',
  'Repeat exactly: {t}',
  'Please repeat: {t}',
  'Write this: {t}',
  'Please copy this: {t}',
];

export function copy(draw: Draw, most = 6): Task {
  const text = Array.from({ length: draw.int(1, most) }, () =>
    draw.any([item, color, person, place, madeUp, (one: Draw) => String(one.int(0, 9999))])(draw),
  ).join(' ');
  return { topic: 'copy', ask: draw.pick(REPEAT).replace('{t}', text), reply: text };
}

const GROUPS: readonly { readonly name: string; readonly members: readonly string[] }[] = [
  { name: 'colors', members: ['red', 'blue', 'green', 'yellow', 'black'] },
  { name: 'fruits', members: ['apple', 'pear', 'banana', 'cherry', 'grape'] },
  { name: 'animals', members: ['dog', 'cat', 'horse', 'cow', 'bird'] },
  { name: 'days of the week', members: ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday'] },
  { name: 'months', members: ['January', 'February', 'March', 'April', 'May'] },
  { name: 'numbers', members: ['one', 'two', 'three', 'four', 'five'] },
  { name: 'cities', members: ['Paris', 'Rome', 'London', 'Berlin', 'Tokyo'] },
  { name: 'tools', members: ['hammer', 'saw', 'drill', 'file', 'axe'] },
  { name: 'drinks', members: ['water', 'tea', 'coffee', 'milk', 'juice'] },
];
const NUMBER_WORDS = ['zero', 'one', 'two', 'three', 'four', 'five'];
const LIST = [
  'List {n} {g}.',
  'Name {n} {g}.',
  'Give me {n} {g}.',
  'Write a list of {n} {g}.',
  'Please list {n} {g}.',
  'Tell me {n} {g}.',
  'Can you name {n} {g}?',
  'List {n} {g}',
  'I need {n} {g}.',
  'Can you list {n} {g}?',
];

export function list(draw: Draw): Task {
  const { name, members } = draw.any(GROUPS);
  const count = draw.int(2, 5);
  const said = draw.chance(0.6) ? (NUMBER_WORDS[count] ?? '') : String(count);
  const reply = members
    .slice(0, count)
    .map((member, at) => `${at + 1}. ${member}`)
    .join('\n');
  return { topic: 'list', ask: draw.pick(LIST).replace('{n}', said).replace('{g}', name), reply };
}

const COUNT = [
  'Count from {a} to {b}.',
  'Count to {b}, starting at {a}.',
  'Write the numbers from {a} to {b}.',
  'Say the numbers from {a} to {b}.',
  'Please count from {a} to {b}.',
];

export function counting(draw: Draw): Task {
  const from = draw.int(1, 9);
  const to = from + draw.int(2, 7);
  const reply = Array.from({ length: to - from + 1 }, (_, at) => from + at).join(', ');
  return { topic: 'counting', ask: draw.pick(COUNT).replace('{a}', String(from)).replace('{b}', String(to)), reply };
}

const UPPER = [
  'Write {t} in upper case.',
  'Make this upper case: {t}',
  'Upper case: {t}',
  'Put {t} in capital letters.',
  'Write this in upper case: {t}',
  'Turn {t} into capital letters.',
];
const LOWER = [
  'Write {t} in lower case.',
  'Make this lower case: {t}',
  'Lower case: {t}',
  'Put {t} in small letters.',
  'Write this in lower case: {t}',
  'Turn {t} into small letters.',
];
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
    ask: draw.pick(up ? UPPER : LOWER).replace('{t}', text),
    reply: up ? words.toUpperCase() : words,
  };
}

const READING: readonly (readonly [string, string, string])[] = [
  ['{n} lives in {p}. Where does {n} live?', '{n} lives in {p}.', 'p'],
  ['The {i} is {c}. What color is the {i}?', 'The {i} is {c}.', 'c'],
  ['{n} bought a {i}. What did {n} buy?', '{n} bought a {i}.', 'i'],
  ['{n} has a {c} {i}. Which color is the {i} of {n}?', 'The {i} is {c}.', 'c'],
  ['My name is {n} and I live in {p}. Where do I live?', 'You live in {p}.', 'p'],
  ['My name is {n}. What is my name?', 'Your name is {n}.', 'n'],
  ['{n} is in {p}. Where is {n}?', '{n} is in {p}.', 'p'],
  ['{n} likes {c}. Which color does {n} like?', '{n} likes {c}.', 'c'],
  ['I have a {c} {i}. What do I have?', 'You have a {c} {i}.', 'i'],
  ['{n} lives in {p} and has a {i}. Where does {n} live?', '{n} lives in {p}.', 'p'],
];

export function reading(draw: Draw): Task {
  const [ask, reply] = draw.pick(READING);
  const values: Readonly<Record<string, string>> = { n: person(draw), p: place(draw), i: item(draw), c: color(draw) };
  const put = (text: string): string => text.replace(/\{(\w)\}/g, (_, slot: string) => values[slot] ?? '');
  return { topic: 'reading', ask: put(ask), reply: put(reply) };
}

const AS_JSON = [
  'Reply with a JSON object with {k}: {t}',
  'Write this as JSON with {k}: {t}',
  'Give me {k} as JSON. {t}',
  'Extract {k} as JSON: {t}',
  'Write this as a JSON object with {k}: {t}',
  '{t} Reply in JSON with {k}.',
  'As JSON with {k}: {t}',
];

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
    ask: draw.pick(AS_JSON).replace('{k}', keys).replace('{t}', capitalised(text)),
    reply,
    json: true,
  };
}

const JSON_LISTS = [
  'List {n} {g} as JSON.',
  'Give me {n} {g} as a JSON object.',
  'Write {n} {g} as JSON.',
  'Reply in JSON: {n} {g}.',
  'Name {n} {g} as JSON.',
];

export function jsonList(draw: Draw): Task {
  const { name, members } = draw.any(GROUPS.filter((group) => !group.name.includes(' ')));
  const count = draw.int(2, 4);
  const ask = draw
    .pick(JSON_LISTS)
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
