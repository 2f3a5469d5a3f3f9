/** Finds how a template writes calls whose arguments stand one by one between marks (TaggedArguments). */
import type { CallSyntax, TaggedArguments } from '../protocol/reply-format.js';
import { KEY, TYPED, type Probe } from './call-probes.js';

/** Where one argument lies in a reply. */
interface ArgumentSpan {
  readonly key: number;
  readonly value: number;
  readonly end: number;
}

/** Where a call lies: its arguments from the first one's opening mark to the last one's closing mark. */
interface CallPlace {
  readonly name: number;
  readonly nameEnd: number;
  readonly arguments: number;
  readonly end: number;
  readonly syntax: TaggedArguments;
}

/** The mark that a call begins with: up to the end of its first tag, or to where a name is to stand in that. */
const MARK = /^<[^<>"=\s]+(?:>|=| \w+=")/;

/** `reply`: a turn that makes the calls with arguments of all types. `end`: what ends a turn. */
export function findTagged(reply: string, probes: readonly Probe[], end: string | undefined): CallSyntax | undefined {
  const places = probes.map((probe, i) => locate(reply, probe, probes[i + 1]));
  const [first, second] = places;
  if (first === undefined || (probes.length > 1 && second === undefined)) return undefined;
  const open = reply.slice(0, first.name).trimStart();
  const mark = MARK.exec(open)?.[0];
  if (mark === undefined || mark === end) return undefined;
  const after = reply.slice((second ?? first).end);
  const ended = end === undefined ? -1 : after.indexOf(end);
  const close = ended >= 0 ? after.slice(0, ended) : (/^\s*(?:<\/[^<>]+>\s*)*/.exec(after)?.[0] ?? '');
  return {
    mark,
    open,
    between: reply.slice(first.nameEnd, first.arguments),
    ...(second && { next: reply.slice(first.end, second.name) }),
    close: close.trimEnd(),
    arguments: first.syntax,
  };
}

function locate(reply: string, { name, value }: Probe, next: Probe | undefined): CallPlace | undefined {
  const at = reply.indexOf(name);
  const until = next === undefined ? reply.length : reply.indexOf(next.name);
  if (at < 0 || until < at) return undefined;
  const nameEnd = at + name.length;
  const text = find(reply, KEY, value, nameEnd, until);
  const typed = Object.entries(TYPED).map(([key, typedValue]) => find(reply, key, typedValue, nameEnd, until));
  const [number, boolean, array, object] = typed;
  if (!text || !number || !boolean || !array || !object) return undefined;
  const all = [text, number, boolean, array, object];
  const order = [...all].sort((a, b) => a.key - b.key);
  const [one, two] = order;
  const last = order.at(-1);
  if (one === undefined || two === undefined || last === undefined) return undefined;
  // Between two arguments stand the first one's closing mark and the second one's opening mark: the last tag before its name.
  const open = /<[^<]*$/.exec(reply.slice(one.end, two.key))?.[0] ?? '';
  const close = reply.slice(one.end, two.key - open.length).trimEnd();
  const lead = one.key - open.length;
  if (open === '' || close.trim() === '' || reply.slice(lead, one.key) !== open) return undefined;
  const betweenOf = (place: ArgumentSpan): string => reply.slice(place.key + nameOf(reply, place).length, place.value);
  const between = {
    string: betweenOf(text),
    number: betweenOf(number),
    boolean: betweenOf(boolean),
    array: betweenOf(array),
    object: betweenOf(object),
    // Those that write the type down call it by its name.
    null: betweenOf(number).replace('"number"', '"null"'),
  };
  if (Object.values(between).some((each) => each.trim() === '')) return undefined;
  if (!reply.startsWith(close, last.end)) return undefined;
  return {
    name: at,
    nameEnd,
    arguments: lead,
    end: last.end + close.length,
    syntax: { kind: 'tagged', open, between, close },
  };
}

function nameOf(reply: string, { key }: ArgumentSpan): string {
  return /^\w+/.exec(reply.slice(key))?.[0] ?? '';
}

/** The place of an argument whose value stands as JSON, or as Python writes it, strings without quotes; undefined if it does not. */
function find(reply: string, key: string, value: unknown, from: number, until: number): ArgumentSpan | undefined {
  const at = reply.indexOf(key, from);
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  const pattern = text
    .replace(/[[\]{}]/g, '\\$&')
    .replace(/[,:]/g, '$&\\s*')
    .replace(/^true$/, '[Tt]rue')
    .replace(/"/g, `["']`);
  const found = at < 0 ? null : new RegExp(pattern).exec(reply.slice(at, until));
  if (found === null) return undefined;
  const start = at + found.index;
  return { key: at, value: start, end: start + found[0].length };
}
