/** Refusals of bodies, and the places that they name, as JSON paths for people: `messages[2].content[0].type`. */
import { type ContractError, contractError } from '../domain/errors.js';
import { type JsonFault, type JsonRead, MAX_NESTING, MAX_VALUES } from './json.js';

/** The longest `param` that docs/contract.md#error-object allows, in characters. */
export const MAX_PARAM = 256;

const INDEX = /^\d+$/;

/** The segments of a JSON pointer, unescaped. */
export function segmentsOf(pointer: string): string[] {
  if (pointer === '') return [];
  return pointer
    .slice(1)
    .split('/')
    .map((segment) => segment.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** `['a', '0', 'b']` as `a[0].b`; no segments: ''. */
export function pathOf(segments: readonly string[]): string {
  let path = '';
  for (const segment of segments) path += INDEX.test(segment) ? `[${segment}]` : path === '' ? segment : `.${segment}`;
  return path;
}

/** Where a problem is, in words and as `param`, with no name that a caller chose in either. */
export interface Place {
  /** `the body`, `model`, `questions has an entry (index 2) whose criteria`; a predicate follows it. */
  readonly subject: string;
  /** At most {@link MAX_PARAM} characters; null: the whole body. */
  readonly param: string | null;
}

/**
 * Describes a place. `openMaps` are the names of maps whose keys callers choose: a key after one is left out, and `param` stops before the
 * first. `entryIndex` is the index of the entry of the first map.
 */
export function placeOf(segments: readonly string[], openMaps: ReadonlySet<string>, entryIndex?: number): Place {
  const parts: string[][] = [[]];
  for (let i = 0; i < segments.length; i++) {
    const segment = segments[i] ?? '';
    parts.at(-1)?.push(segment);
    if (openMaps.has(segment) && i + 1 < segments.length) {
      parts.push([]);
      i++;
    }
  }
  const [known = [], ...inner] = parts;
  let subject = known.length === 0 ? 'the body' : pathOf(known);
  inner.forEach((part, i) => {
    subject += ` has an entry${i === 0 && entryIndex !== undefined ? ` (index ${entryIndex})` : ''}`;
    subject += part.length === 0 ? ' that' : ` whose ${pathOf(part)}`;
  });
  return { subject, param: paramOf(known) };
}

/** The longest beginning that fits; null when there is nothing to name. */
function paramOf(segments: readonly string[]): string | null {
  let kept = segments.length;
  let path = pathOf(segments);
  while (path.length > MAX_PARAM) path = pathOf(segments.slice(0, --kept));
  return path === '' ? null : path;
}

/** The part of a JSON schema that says which names and indexes a value may have. */
interface Shape {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Shape>>;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly items?: Shape;
  readonly oneOf?: readonly Shape[];
  readonly then?: Shape;
  readonly else?: Shape;
}

/** The beginning of a path that consists of names of `schema` and of indexes of its arrays: none of it is the caller's own. */
export function knownSegments(schema: object, segments: readonly string[]): string[] {
  const root: Shape = schema;
  const known: string[] = [];
  let at = [root];
  for (const segment of segments) {
    at = at.flatMap((shape) => alternativesOf(shape, root)).flatMap((shape) => memberOf(shape, segment));
    if (at.length === 0) break;
    known.push(segment);
  }
  return known;
}

/** A schema and those of its branches: each says something of the same value. */
function alternativesOf(shape: Shape, root: Shape): Shape[] {
  const referred = root.$defs?.[shape.$ref?.replace(/^#\/\$defs\//, '') ?? ''];
  const branches = [...(shape.oneOf ?? []), shape.then, shape.else, referred].filter((branch) => branch !== undefined);
  return [shape, ...branches.flatMap((branch) => alternativesOf(branch, root))];
}

function memberOf({ properties = {}, items }: Shape, segment: string): Shape[] {
  const member = Object.hasOwn(properties, segment) ? properties[segment] : undefined;
  return [member, INDEX.test(segment) ? items : undefined].filter((found) => found !== undefined);
}

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
