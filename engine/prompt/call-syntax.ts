/**
 * Finds how a model writes calls, by rendering a turn with two of them and looking at what stands around their parts. What was
 * found is tried on the rendered turn itself: a syntax that does not give the two calls back is not used.
 */
import { CallParser } from '../output/calls/call-parser.js';
import type { CallPiece } from '../output/calls/call-text.js';
import { ID } from '../output/calls/expected-text.js';
import type { CallSyntax } from '../protocol/reply-format.js';
import { callingTurn, KEY, PROBES, turnEnd, type Probe, type Render, TYPED } from './call-probes.js';
import { familyOf } from './call-families.js';

/**
 * For models whose template writes calls as something other than JSON, or not at all: the whole reply is one JSON object,
 * constrained by a grammar (llama.cpp's generic format).
 */
export const WRAPPED: CallSyntax = {
  mark: '',
  open: '{"tool_calls": [{"name": "',
  between: '", "arguments": ',
  next: '}, {"name": "',
  close: '}]}',
  answer: '{"response": "',
};

/**
 * The syntax of a template that can be given tools; {@link WRAPPED} when it is none of those known. `source`: the
 * template's own, for the few whose calls cannot be found by rendering.
 */
export function callSyntaxOf(source: string, render: Render): CallSyntax {
  const end = turnEnd(render);
  for (const typed of [false, true]) {
    for (const probes of [PROBES, PROBES.slice(0, 1)]) {
      const reply = callingTurn(render, probes, typed)?.replace(NOTHING, '');
      const find = typed ? findTagged : syntaxIn;
      const syntax = reply === undefined ? undefined : find(reply, probes, end);
      if (reply === undefined || syntax === undefined || !givesBack(syntax, reply, probes)) continue;
      const { arguments: notation, open } = syntax;
      const cdata = source.includes(CDATA) && notation?.kind === 'tagged';
      return {
        ...syntax,
        ...(QWEN_CODER.test(open) && !source.includes('think>') && { alsoOpen: ['<function='] }),
        ...(cdata && { arguments: { ...notation, cdata } }),
      };
    }
  }
  return familyOf(source) ?? WRAPPED;
}

/** Some templates put strings with special characters into this. */
const CDATA = '<![CDATA[';

/** Where the model does not think, it leaves out the first tag now and then (QwenLM/Qwen3-Coder issue 475). */
const QWEN_CODER = /^<tool_call>\s*<function=$/;

/** Marks of an empty thought, or of an empty text (Llama 4), which templates put before the calls. */
const NOTHING = /^\s*(?:(?:<[^<>]*think[^<>]*>|\[\/?THINK\]|<\|python_start\|><\|python_end\|>)\s*)*/i;

/** A mark: `<…>`, `<…=` or `[…]`, several in a row, words only between them. White space or JSON ends it. */
const MARK = /^(?:<(?:[^\s<>{"])+>?|\[[A-Z_]+\])(?:[^\s{["]|\[[A-Z_]+\])*/;

function syntaxIn(reply: string, probes: readonly Probe[], end: string | undefined): CallSyntax | undefined {
  const [first, second] = probes.map((probe) => locate(reply, probe));
  if (first === undefined) return undefined;
  const open = textOf(reply.slice(0, first.name), probes);
  const mark = MARK.exec(open)?.[0] ?? '';
  // Words between the mark and the JSON belong to another turn or to the model's prose; a mark that ends turns is none.
  if (!/^\s*(?:[{[]|$)/.test(open.slice(mark.length)) || (mark === '' && open[0] !== '{') || mark === end)
    return undefined;
  const after = reply.slice((second ?? first).end);
  const ended = end === undefined ? -1 : after.indexOf(end);
  // Some end a turn with calls otherwise than one with words.
  const close = ended >= 0 ? after.slice(0, ended) : (/^[\s\]}]*(?:<\/[^<>]+>)?/.exec(after)?.[0] ?? '');
  return {
    mark,
    open,
    // Llama 3.1 writes the kind of tool before the name now and then.
    ...(/^\{\s*"name"/.test(open) && { alsoOpen: [`{"type": "function", ${open.slice(1)}`] }),
    between: textOf(reply.slice(first.nameEnd, first.arguments), probes),
    ...(second && { next: textOf(reply.slice(first.end, second.name), probes) }),
    close: textOf(close, probes).trimEnd(),
  };
}

/** Where a call's parts lie; undefined if its arguments are not JSON, or come before its name. */
function locate(reply: string, { name, value }: Probe) {
  const found = new RegExp(`\\{\\s*"${KEY}":\\s*"${value}"\\s*\\}`).exec(reply);
  if (found === null) return undefined;
  const at = reply.lastIndexOf(name, found.index);
  if (at < 0) return undefined;
  return { name: at, nameEnd: at + name.length, arguments: found.index, end: found.index + found[0].length };
}

/** Ids, and numbers that count the calls, are different in every call. */
function textOf(text: string, probes: readonly Probe[]): string {
  return probes.reduce((out, { id }) => out.replaceAll(id, ID), text).replace(/(?<!\w)[012](?!\w)/g, ID);
}

function givesBack(syntax: CallSyntax, reply: string, probes: readonly Probe[]): boolean {
  const functions = probes.map(({ name }) => name);
  const parser = new CallParser({ syntax, functions, single: false });
  const calls = callsOf(parser.push(reply).calls);
  return (
    calls.length === probes.length &&
    probes.every(({ name, value }, i) => calls[i]?.name === name && calls[i].arguments.includes(`"${value}"`))
  );
}

function callsOf(pieces: readonly CallPiece[]): { readonly name: string; readonly arguments: string }[] {
  return pieces.flatMap(({ index, name }) => {
    if (name === undefined) return [];
    const parts = pieces.filter((piece) => piece.index === index);
    return [{ name, arguments: parts.map((piece) => piece.arguments).join('') }];
  });
}

/** Finds how a template writes calls whose arguments stand one by one between marks (TaggedArguments). */

/** The mark that a call begins with: up to the end of its first tag, or to where a name is to stand in that. */
const TAG_MARK = /^<[^<>"=\s]+(?:>|=| \w+=")/;

/** `reply`: a turn that makes the calls with arguments of all types. `end`: what ends a turn. */
function findTagged(reply: string, probes: readonly Probe[], end: string | undefined): CallSyntax | undefined {
  const places = probes.map((probe, i) => locateTagged(reply, probe, probes[i + 1]));
  const [first, second] = places;
  if (first === undefined || (probes.length > 1 && second === undefined)) return undefined;
  const open = reply.slice(0, first.name).trimStart();
  const mark = TAG_MARK.exec(open)?.[0];
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

function locateTagged(reply: string, { name, value }: Probe, next: Probe | undefined) {
  const at = reply.indexOf(name);
  const until = next === undefined ? reply.length : reply.indexOf(next.name);
  if (at < 0 || until < at) return undefined;
  const nameEnd = at + name.length;
  const text = find(reply, KEY, value, nameEnd, until);
  const typed = Object.entries(TYPED).map(([key, typedValue]) => find(reply, key, typedValue, nameEnd, until));
  const [number, boolean, array, object] = typed;
  if (!text || !number || !boolean || !array || !object) return undefined;
  const order = [text, number, boolean, array, object].sort((a, b) => a.key - b.key);
  const [one, two] = order;
  const last = order.at(-1);
  if (one === undefined || two === undefined || last === undefined) return undefined;
  // Between two arguments stand the first one's closing mark and the second one's opening mark: the last tag before its name.
  const open = /<[^<]*$/.exec(reply.slice(one.end, two.key))?.[0] ?? '';
  const close = reply.slice(one.end, two.key - open.length).trimEnd();
  const lead = one.key - open.length;
  if (open === '' || close.trim() === '' || reply.slice(lead, one.key) !== open) return undefined;
  const betweenOf = (place: typeof text): string => reply.slice(place.key + nameOf(reply, place).length, place.value);
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
    syntax: { kind: 'tagged' as const, open, between, close },
  };
}

function nameOf(reply: string, { key }: { readonly key: number }): string {
  return /^\w+/.exec(reply.slice(key))?.[0] ?? '';
}

/** The place of an argument whose value stands as JSON, or as Python writes it, strings without quotes; undefined if it does not. */
function find(reply: string, key: string, value: unknown, from: number, until: number) {
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
