/**
 * The contract as tables: what each place of a request may contain. The same tables run in-process and as raw HTTP.
 * They are written from docs/contract.md, not from the schemas.
 */
import type { ModelRoute } from '../../../sidecar/contracts/requests.js';
import { type At, type Json, bytesOf, pathText, shown, withAt } from '../../support/bodies.js';

/** The routes that have tables: test/contract/embeddings.test.ts has cases of the others. */
export type TableRoute = Exclude<ModelRoute, 'embeddings' | 'rerank'>;

/** Contained in every text for which a case may be refused; no refusal may contain it. */
export const CANARY = 'zcanary';

/** The longest text in one message or field, in characters. */
export const MAX_TEXT = 16_777_216;

/** A longer body is left out of runs that are repeated. */
const HEAVY_BYTES = 400_000;

export interface Refusal {
  readonly message: string;
  readonly param: string | null;
}

export interface ContractCase {
  readonly route: TableRoute;
  readonly name: string;
  /** Created on demand: some have 16 MiB. */
  readonly body: () => Uint8Array;
  /** The value before it became text; absent where the text matters. */
  readonly value?: () => Json;
  /** Absent: the contract accepts the body. */
  readonly refusal?: Refusal;
  /** The body is long: 1 MB or 16 MiB. */
  readonly heavy: boolean;
}

type Kind = 'null' | 'boolean' | 'number' | 'string' | 'array' | 'object';

const SAMPLES: Readonly<Record<Kind, Json>> = {
  null: null,
  boolean: true,
  number: 7,
  string: CANARY,
  array: [CANARY],
  object: { [CANARY]: CANARY },
};

/** What a place may contain. */
export interface Rule {
  readonly at: At;
  /** JSON types that the place accepts; each other one is tried and refused with `wrong`. */
  readonly kinds: readonly Kind[];
  readonly wrong: string;
  /** At each bound, and in between. */
  readonly good: readonly Json[];
  /** Past each bound, with the refusal’s predicate. */
  readonly bad: readonly (readonly [value: Json, predicate: string])[];
}

/** A closed object. */
export interface Closed {
  readonly at: At;
  /** In the contract's order. */
  readonly fields: readonly string[];
  readonly required: readonly string[];
}

/** A valid body, and how problems in it are named. */
export interface Surface {
  readonly route: TableRoute;
  readonly base: Json;
  place(at: At): { readonly subject: string; readonly param: string | null };
}

/** Places where all names are the contract’s. */
export function plainPlace(at: At): { subject: string; param: string | null } {
  const path = pathText(at);
  return path === '' ? { subject: 'the body', param: null } : { subject: path, param: path };
}

/** A case that replaces one place of the surface’s body; `undefined` removes the place. */
export function changed(surface: Surface, at: At, value: Json | undefined, refusal?: Refusal): ContractCase {
  const verdict = refusal === undefined ? 'accepts' : 'refuses';
  const body = (): Json => withAt(surface.base, at, value);
  return {
    route: surface.route,
    name: `${surface.route}: ${at.length === 0 ? 'the body' : pathText(at)} ${verdict} ${shown(value)}`,
    body: () => bytesOf(JSON.stringify(body())),
    value: body,
    heavy: isLong(value),
    ...(refusal && { refusal }),
  };
}

/** A case with its own body. */
export function whole(route: TableRoute, name: string, body: string | Uint8Array, refusal?: Refusal): ContractCase {
  return {
    route,
    name: `${route}: ${name}`,
    body: () => (typeof body === 'string' ? bytesOf(body) : body),
    heavy: false,
    ...(refusal && { refusal }),
  };
}

/** Whether a value is kept out of runs that are repeated. */
export function isLong(value: Json | undefined): boolean {
  return sizeOf(value) > HEAVY_BYTES;
}

/** Roughly the characters of a value. */
function sizeOf(value: Json | undefined): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value as Record<string, Json>).reduce<number>((sum, item) => sum + sizeOf(item), 1);
}

/** A value for a place, and the place and the text if it is refused. */
export interface Verdict {
  readonly at: At;
  /** Absent: the place is removed. */
  readonly value?: Json;
  readonly refused?: { readonly at: At; readonly predicate: string };
}

/** One value at each bound, one past it, and one of each wrong type. */
export function verdictsOfRule({ at, kinds, wrong, good, bad }: Rule): Verdict[] {
  const others = (Object.keys(SAMPLES) as Kind[])
    .filter((kind) => !kinds.includes(kind))
    .map((kind) => [SAMPLES[kind], wrong] as const);
  return [
    ...good.map((value) => ({ at, value })),
    ...[...bad, ...others].map(([value, predicate]) => ({ at, value, refused: { at, predicate } })),
  ];
}

/** Names that no contract has, some of them dangerous for careless code. */
const STRANGERS = [CANARY, '__proto__', 'constructor', 'toString', ''];

/** Each field omitted, each field with one letter changed, and unknown fields. */
export function verdictsOfClosed({ at, fields, required }: Closed): Verdict[] {
  const predicate = `has a field outside the contract; its fields are ${fields.join(', ')}`;
  const siblings = fields.map((name) => `${name}_${CANARY}`);
  return [
    ...fields.map((name) => {
      const field = [...at, name];
      return required.includes(name) ? { at: field, refused: { at: field, predicate: 'is required' } } : { at: field };
    }),
    ...[...siblings, ...STRANGERS].map((name) => ({ at: [...at, name], value: CANARY, refused: { at, predicate } })),
  ];
}

/** An expected outcome for one place of the surface’s body. */
export function caseOf(surface: Surface, { at, value, refused }: Verdict): ContractCase {
  if (refused === undefined) return changed(surface, at, value);
  const { subject, param } = surface.place(refused.at);
  return changed(surface, at, value, { message: `${subject} ${refused.predicate}`, param });
}
