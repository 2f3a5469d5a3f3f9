/** Rules for the kinds of fields that occur more than once. */
import type { At, Json } from '../../support/bodies.js';
import { CANARY, MAX_TEXT, type Rule } from './rule.js';

/** A text of so many characters, containing the canary if it fits. */
export function filled(length: number): string {
  return CANARY.repeat(Math.ceil(length / CANARY.length)).slice(0, length);
}

/** 16 MiB each, so they are created once. */
export const LONGEST = filled(MAX_TEXT);
export const TOO_LONG = `${LONGEST}z`;

export function many<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, i) => make(i));
}

export function integer(at: At, low: number, high: number): Rule {
  return {
    at,
    kinds: ['number'],
    wrong: 'must be an integer',
    good: [low, high],
    bad: [
      [low - 1, `must be at least ${low}`],
      [high + 1, `must be at most ${high}`],
      [low + 0.5, 'must be an integer'],
    ],
  };
}

export function number(at: At, low: number, high: number, step = 0.001): Rule {
  return {
    at,
    kinds: ['number'],
    wrong: 'must be a number',
    good: [low, high, (low + high) / 2],
    bad: [
      [low - step, `must be at least ${low}`],
      [high + step, `must be at most ${high}`],
    ],
  };
}

export function boolean(at: At): Rule {
  return { at, kinds: ['boolean'], wrong: 'must be a boolean', good: [true, false], bad: [] };
}

/** `good`: the values that the rest of the body allows. */
export function oneOf(at: At, values: readonly string[], good = values): Rule {
  const wrong = `must be one of ${values.join(', ')}`;
  return { at, kinds: [], wrong, good, bad: [[values[0]?.toUpperCase() ?? '', wrong]] };
}

export function constant(at: At, value: string): Rule {
  return { at, kinds: [], wrong: `must be ${value}`, good: [value], bad: [[`${value} `, `must be ${value}`]] };
}

/** A text of `low` to `high` code points. */
export function text(at: At, low: 0 | 1, high: number): Rule {
  return {
    at,
    kinds: ['string'],
    wrong: 'must be a string',
    good: [low === 0 ? '' : 'a', filled(high), ...(high > 1000 ? [] : ['😀'.repeat(high)])],
    bad: [
      [filled(high + 1), `must have at most ${high} characters`],
      ...(low === 0 ? [] : ([['', 'must not be empty']] as const)),
      ...(high > 1000 ? [] : ([[`${'😀'.repeat(high)}a`, `must have at most ${high} characters`]] as const)),
    ],
  };
}

export function longText(at: At, low: 0 | 1): Rule {
  return {
    at,
    kinds: ['string'],
    wrong: 'must be a string',
    good: [low === 0 ? '' : 'a', LONGEST],
    bad: [
      [TOO_LONG, `must have at most ${MAX_TEXT} characters`],
      ...(low === 0 ? [] : ([['', 'must not be empty']] as const)),
    ],
  };
}

/** As {@link longText}, null included. */
export function longTextOrNull(at: At): Rule {
  const rule = longText(at, 0);
  return { ...rule, kinds: ['string', 'null'], wrong: 'must be a string or null', good: [...rule.good, null] };
}

/** A text that is not blank. */
export function notBlank(at: At, high: number): Rule {
  return {
    at,
    kinds: ['string'],
    wrong: 'must be a string',
    good: ['a', ' a\n', filled(high), ...(high > 1000 ? [] : ['😀'.repeat(high)])],
    bad: [
      ['', 'must not be blank'],
      [' \n\t\u00a0\u3000', 'must not be blank'],
      [filled(high + 1), `must have at most ${high} characters`],
    ],
  };
}

/** The name of a function or a participant. */
export function toolName(at: At, good: readonly string[] = ['a', 'A-_9'.repeat(16)]): Rule {
  const spoiled = 'must match ^[A-Za-z0-9_-]+$';
  return {
    at,
    kinds: ['string'],
    wrong: 'must be a string',
    good,
    bad: [
      ['', 'must not be empty'],
      [filled(65), 'must have at most 64 characters'],
      [`a ${CANARY}`, spoiled],
      [`${CANARY}\n`, spoiled],
      ['é', spoiled],
      [`.${CANARY}`, spoiled],
    ],
  };
}

/** The model's id, on every route. */
export function modelId(): Rule {
  const spoiled = 'must match ^[A-Za-z0-9][A-Za-z0-9._:/-]*$';
  return {
    at: ['model'],
    kinds: ['string'],
    wrong: 'must be a string',
    good: ['a', '9', 'org/model:tag-1.0_x', filled(128)],
    bad: [
      ['', 'must not be empty'],
      [filled(129), 'must have at most 128 characters'],
      [`.${CANARY}`, spoiled],
      [`-${CANARY}`, spoiled],
      [`a ${CANARY}`, spoiled],
      [`${CANARY}\n`, spoiled],
      [`${CANARY}é`, spoiled],
    ],
  };
}

/** An object; its content has rules of its own. */
export function object(at: At, good: readonly Json[] = []): Rule {
  return { at, kinds: ['object'], wrong: 'must be an object', good, bad: [] };
}

/** A list of `low` to `high` items, each created by `item`. */
export function list(at: At, low: number, high: number, item: (index: number) => Json): Rule {
  return {
    at,
    kinds: ['array'],
    wrong: 'must be an array',
    good: [many(low, item), many(high, item)],
    bad: [
      [many(low - 1, item), low === 1 ? 'must have at least 1 item' : `must have at least ${low} items`],
      [many(high + 1, item), `must have at most ${high} items`],
    ],
  };
}
