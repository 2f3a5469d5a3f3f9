/** Facts that must be read and not known: devices and their states, fields of records, who is where. */
import { asking, choiceOf, picked, score, yesNo } from './asking.js';
import type { Draw } from './draw.js';
import type { Asked, DecisionExample } from './example.js';
import { colors, devices, items, people, place } from './names.js';
import { WORDINGS } from './wordings.js';

const wordings = WORDINGS.facts;

/** Devices, each on or off, open or closed. */
export function states(draw: Draw): DecisionExample {
  const names = devices(draw, draw.int(2, 5));
  const pair = draw.any(wordings.opposites);
  // At least one of each, so that "which one" has an answer; the odd one out is asked for.
  const odd = draw.int(0, names.length - 1);
  const common = draw.int(0, 1) as 0 | 1;
  const states = names.map((_, at) => (at === odd ? pair[1 - common] : pair[common]) ?? '');
  const form = draw.pick(wordings.states);
  const lines = names.map((name, at) => form.replace('{d}', name).replace('{s}', states[at] ?? ''));
  const oddState = states[odd] ?? '';
  const questions: Asked[] = [];
  for (const at of draw.some([...names.keys()], asking(draw, 2, 4))) {
    const state = draw.any(pair);
    const question = draw.pick(wordings.isInState);
    questions.push(yesNo(draw, question.replace('{d}', names[at] ?? '').replace('{s}', state), states[at] === state));
  }
  for (let times = asking(draw, 1, 2); times > 0; times--) {
    questions.push(whichHas(draw, oddState, odd, names), stateOf(draw, names, states, pair));
  }
  questions.push(...picked(draw, names));
  const count = states.filter((one) => one === oddState).length;
  if (draw.chance(0.3))
    questions.push(score(`How many devices are ${oddState}?`, ['0', '1', '2', '3'], Math.min(3, count)));
  return {
    kind: 'decision',
    topic: 'states',
    input: lines.join(draw.chance(0.8) ? ' ' : '\n'),
    questions: draw.some(questions, asking(draw, 4, 8)),
  };
}

function whichHas(draw: Draw, state: string, right: number, names: readonly string[]): Asked {
  const which = draw.pick(wordings.whichInState);
  const wrong = names.filter((_, at) => at !== right);
  return choiceOf(draw, which.replace('{s}', state), names[right] ?? '', wrong);
}

function stateOf(draw: Draw, names: readonly string[], states: readonly string[], pair: readonly string[]): Asked {
  const at = draw.int(0, names.length - 1);
  const form = draw.pick(wordings.whatState);
  const others = wordings.opposites.filter((other) => !pair.includes(other[0] ?? '')).flat();
  const wrong = [...pair.filter((one) => one !== states[at]), ...draw.some(others, 2)];
  return choiceOf(draw, form.replace('{d}', names[at] ?? ''), states[at] ?? '', wrong, 3);
}

const FIELDS: readonly { readonly name: string; readonly make: (draw: Draw) => string[] }[] = [
  {
    name: 'status',
    make: (draw) => draw.some(['shipped', 'paid', 'open', 'closed', 'waiting', 'cancelled', 'new'], 4),
  },
  { name: 'color', make: (draw) => colors(draw, 4) },
  { name: 'size', make: (draw) => draw.some(['small', 'medium', 'large', 'huge', 'tiny'], 4) },
  { name: 'city', make: (draw) => [...new Set(Array.from({ length: 6 }, () => place(draw)))].slice(0, 4) },
  { name: 'owner', make: (draw) => people(draw, 4) },
  { name: 'item', make: (draw) => items(draw, 4) },
  {
    name: 'day',
    make: (draw) => draw.some(['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'], 4),
  },
];

/** A record of named fields, in one of several notations. */
export function record(draw: Draw): DecisionExample {
  const fields = draw.some(FIELDS, draw.int(2, 4)).map(({ name, make }) => ({ name, values: make(draw) }));
  const value = (at: number): string => fields[at]?.values[0] ?? '';
  const notation = draw.int(0, 3);
  const lines = fields.map(({ name }, at) =>
    notation === 0
      ? `${name}: ${value(at)}`
      : notation === 1
        ? `${name}=${value(at)}`
        : notation === 2
          ? `"${name}": "${value(at)}"`
          : `The ${name} is ${value(at)}.`,
  );
  const input = notation === 2 ? `{${lines.join(', ')}}` : lines.join(notation === 3 ? ' ' : draw.any(['\n', ', ']));
  const keys = [...fields.keys()];
  const questions = draw.some(draw.split === 'held' ? keys : [...keys, ...keys], asking(draw, 3, 7)).map((at) => {
    const { name, values } = fields[at] ?? { name: '', values: [] };
    const [right = '', ...wrong] = values;
    if (draw.chance(0.5)) {
      const said = draw.chance(0.5) ? right : draw.any(wrong);
      const form = draw.pick(wordings.isField);
      return yesNo(draw, form.replace('{f}', name).replace('{v}', said), said === right);
    }
    const form = draw.pick(wordings.whichField);
    return choiceOf(draw, form.replace('{f}', name), right, wrong);
  });
  questions.push(
    ...picked(
      draw,
      fields.map(({ name }) => name),
    ),
  );
  return { kind: 'decision', topic: 'record', input, questions };
}

const HAS = ['{n} has a {i}.', '{n} bought a {i}.', '{n} lives in {p}.', '{n} likes {c}.'] as const;
const WHO = ['Who has a {i}?', 'Who bought a {i}?', 'Who lives in {p}?', 'Who likes {c}?'] as const;
const DOES = ['Does {n} have a {i}?', 'Did {n} buy a {i}?', 'Does {n} live in {p}?', 'Does {n} like {c}?'] as const;

/** Who has, lives or likes what. */
export function persons(draw: Draw): DecisionExample {
  const names = people(draw, draw.int(2, 4));
  const kind = draw.int(0, 3);
  const things =
    kind === 2
      ? [...new Set(Array.from({ length: 9 }, () => place(draw)))]
      : kind === 3
        ? colors(draw, 4)
        : items(draw, 4);
  const put = (text: string, name: string, thing: string): string =>
    text.replace('{n}', name).replace(/\{[ipc]\}/, thing);
  const held = names.slice(0, things.length);
  const input = held.map((name, at) => put(HAS[kind] ?? '', name, things[at] ?? '')).join(' ');
  const keys = [...held.keys()];
  const questions = draw.some(draw.split === 'held' ? keys : [...keys, ...keys], asking(draw, 3, 7)).map((at) => {
    const name = held[at] ?? '';
    if (draw.chance(0.5)) {
      const other = draw.chance(0.5) ? at : (at + draw.int(1, held.length - 1)) % held.length;
      return yesNo(draw, put(DOES[kind] ?? '', name, things[other] ?? ''), other === at);
    }
    return choiceOf(
      draw,
      put(WHO[kind] ?? '', '', things[at] ?? ''),
      name,
      held.filter((one) => one !== name),
    );
  });
  questions.push(...picked(draw, held));
  return { kind: 'decision', topic: 'persons', input, questions };
}
