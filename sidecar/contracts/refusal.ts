import { type ContractError, contractError } from '../domain/errors.js';
import { type JsonFault, type JsonRead, MAX_NESTING, MAX_VALUES } from './json.js';
import { knownSegments, type Place, placeOf } from './paths.js';

/** A request, or why there is none. */
export type Parsed<T> =
  { readonly kind: 'ok'; readonly request: T } | { readonly kind: 'invalid'; readonly error: ContractError };

/** Refuses with 400 what is at `param`: a path of contract names and indexes; null: the body. `predicate`: `must …`. */
export function refuse(param: string | null, predicate: string): Extract<Parsed<never>, { kind: 'invalid' }> {
  return refuseAt({ subject: param ?? 'the body', param }, predicate);
}

/** As {@link refuse}, with a place in words. */
export function refuseAt(place: Place, predicate: string): Extract<Parsed<never>, { kind: 'invalid' }> {
  return {
    kind: 'invalid',
    error: contractError('bad_request', `${place.subject} ${predicate}`, { param: place.param }),
  };
}

const FAULTS: Readonly<Record<JsonFault, string>> = {
  encoding: 'must be UTF-8',
  'byte-order-mark': 'must not begin with a byte order mark',
  syntax: 'must be JSON',
  nesting: `must not nest deeper than ${MAX_NESTING} levels`,
  values: `must not hold more than ${MAX_VALUES} values`,
  'repeated-name': 'must not repeat a name within one object',
  'lone-surrogate': 'must not hold half a surrogate pair',
};

/** Refuses a body that is not the JSON we take. The place ends where `schema`, the body's contract, no longer names it. */
export function refuseJson(
  { fault, segments = [] }: Extract<JsonRead, { readonly ok: false }>,
  schema: object,
): Extract<Parsed<never>, { kind: 'invalid' }> {
  return refuseAt(placeOf(knownSegments(schema, segments), NO_MAPS), FAULTS[fault]);
}

/** {@link knownSegments} leaves out what is in a map. */
const NO_MAPS: ReadonlySet<string> = new Set();
