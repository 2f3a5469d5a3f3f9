import type { NodeParts, ValueType, ValueTypes } from '../../protocol/reply-format.js';

/** The longest JSON text that is looked for among the only values of a member. One that is longer is known by its type alone. */
const MAX_COMPARED = 1024;

/** What a member of a name may be in one way of giving an object's members. Undefined: it has none of that name. */
type Way<Member> = (name: string) => Member | undefined;

/**
 * The ways of giving an object's members, or an array's items by their places, that are possible after those that were read. What
 * a member may be differs by way: of two ways, one may have the `kind` "text" and a string, the other the `kind` "count" and an
 * integer. Whether "42" is a string is then known by the kind.
 */
export class PossibleWays<Member extends ValueTypes> {
  #ways: readonly Way<Member>[];
  #name = '';
  /** What was read of the member's JSON, up to where it is too long to be compared. */
  #json = '';

  /** All ways there are. */
  constructor(ways: readonly Way<Member>[]) {
    this.#ways = ways;
  }

  /** The value of this member follows. Returns what it may be in the ways that have such a member, each once. */
  begin(name: string): readonly Member[] {
    this.#name = name;
    this.#json = '';
    return [...new Set(this.#ways.flatMap((way) => way(name) ?? []))];
  }

  /** More of the value's JSON. Once it is `complete`, the ways that allow it remain. */
  read(json: string, complete: boolean): void {
    if (this.#json.length <= MAX_COMPARED) this.#json += json;
    if (!complete) return;
    const kept = this.#ways.filter((way) => {
      const member = way(this.#name);
      return member !== undefined && allows(member, this.#json);
    });
    // None allows it where no grammar constrained the text, or where a value before it was read as another way has it: all remain.
    if (kept.length > 0) this.#ways = kept;
  }
}

/** The members of one object, or the items of one array by their places, as the way of giving them. `nodes`: what the parts point into. */
export function membersOf<Member>({ named = {}, others }: NodeParts, nodes: readonly Member[]): Way<Member> {
  return (name) => {
    const number = Object.hasOwn(named, name) ? named[name] : others;
    return number === undefined ? undefined : nodes[number];
  };
}

/** What a value may be that is one of these. */
export function united(all: readonly ValueTypes[]): Pick<ValueTypes, 'types' | 'scalars'> {
  const types = [...new Set(all.flatMap((each) => each.types))];
  if (all.every(({ scalars }) => scalars === undefined)) return { types };
  return { types, scalars: all.flatMap((each) => each.scalars ?? [{ types: each.types }]) };
}

/** By the first character of their JSON. All else are numbers. */
const TYPES: Readonly<Record<string, ValueType>> = {
  '{': 'object',
  '[': 'array',
  '"': 'string',
  t: 'boolean',
  f: 'boolean',
  n: 'null',
};

/** Whether a value, given as JSON, is one of these. */
function allows({ types, values }: ValueTypes, json: string): boolean {
  const type = TYPES[json[0] ?? ''] ?? 'number';
  const nested = type === 'object' || type === 'array';
  if (values !== undefined && !nested && json.length <= MAX_COMPARED)
    return values.includes(JSON.stringify(JSON.parse(json)));
  return types.includes(type) || (types.includes('integer') && /^-?\d+$/.test(json));
}
