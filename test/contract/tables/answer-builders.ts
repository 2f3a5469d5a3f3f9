/** Rules for the fields of answers, and the type of a table of one. */
import type { AnswerKind } from '../../../sidecar/contracts/answer-schemas.js';
import type { At, Json } from '../../support/bodies.js';
import { filled } from './builders.js';
import type { Closed, Rule } from './rule.js';

export interface AnswerTable {
  readonly kind: AnswerKind;
  /** With every field. */
  readonly base: Json;
  readonly rules: readonly Rule[];
  readonly objects: readonly Closed[];
}

const HIGH = Number.MAX_SAFE_INTEGER;

/** An integer up to `high`. */
export const count = (at: At, high = HIGH): Rule => ({
  at,
  kinds: ['number'],
  wrong: 'must be an integer',
  good: [0, high],
  bad: [
    [-1, 'must be at least 0'],
    [0.5, 'must be an integer'],
    ...(high === HIGH ? [] : ([[high + 1, `must be at most ${high}`]] as const)),
  ],
});

export const probability = (at: At): Rule => ({
  at,
  kinds: ['number'],
  wrong: 'must be a number',
  good: [0, 1, 0.5],
  bad: [
    [-0.001, 'must be at least 0'],
    [1.001, 'must be at most 1'],
  ],
});

/** A number without an upper bound of its own. */
export const score = (at: At): Rule => ({ ...probability(at), good: [0, 9], bad: [[-0.001, 'must be at least 0']] });

export const orNull = (rule: Rule, wrong: string): Rule => ({
  ...rule,
  kinds: [...rule.kinds, 'null'],
  wrong,
  good: [...rule.good, null],
});

/** A text without a bound. */
export const anyText = (at: At): Rule => ({
  at,
  kinds: ['string'],
  wrong: 'must be a string',
  good: ['', filled(99)],
  bad: [],
});

export const nothing = (at: At): Rule => ({ at, kinds: ['null'], wrong: 'must be null', good: [null], bad: [] });

export const all = (at: At, fields: readonly string[]): Closed => ({ at, fields, required: fields });
