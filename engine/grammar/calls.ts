import type { CallSyntax, ValueNode } from '../protocol/reply-format.js';
import { grammarText, literal, MAX_GRAMMAR_CHARACTERS, type GrammarPart, inClass, textUpTo } from './gbnf.js';
import { JSON_RULES, notationOf, spaced, SPACED_RULES, withoutUnnamed, type Notation } from './notation.js';
import { schemaGrammar, type SchemaGrammar } from './schema.js';
import { isRecord } from './shape.js';
import { MAX_STACKS } from './stacks.js';
import { valueNodes } from './value-nodes.js';
import { unlessUnservable, WorkBudget, type NoGrammar } from './work.js';

/** A function that may be called; `parameters` is the JSON schema of its arguments. */
export interface Callable {
  readonly name: string;
  readonly parameters: unknown;
}

/** `stacks`: the most places that a text of it can be at, all at once. `values`: as {@link CallFormat} has them. */
export type CallRules =
  | {
      readonly kind: 'ok';
      readonly gbnf: string;
      readonly stacks: number;
      readonly values?: readonly (readonly ValueNode[])[];
    }
  /** `at`: the index of the function whose parameters cause it; absent: all together do. */
  | (NoGrammar & { readonly at?: number });

/** The rule that a calls grammar begins with. */
const START = 'calls';

const SHARED = [
  ...SPACED_RULES,
  'call-answer-unit ::= [^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\/bfnrt] | "u" [0-9a-fA-F]{4})',
];

/**
 * Rules for one or several calls as a model writes them, with a start named `calls` and no root. `answer`: a wrapped answer is an
 * alternative. `beside`: rules that will stand in one grammar with these. `work`: the remainder of the request's bound.
 */
export function callRules(
  syntax: CallSyntax,
  functions: readonly Callable[],
  {
    single,
    answer,
    beside = [],
  }: { readonly single: boolean; readonly answer: boolean; readonly beside?: readonly string[] },
  work = new WorkBudget(),
): CallRules {
  const parts: GrammarPart[] = [];
  const values: (readonly ValueNode[])[] = [];
  const kind = syntax.arguments?.kind;
  const notation = notationOf(syntax.arguments);
  const written = new Set<unknown>(JSON_RULES);
  let characters = 0;
  /** By name: calls of functions with one name differ only by their arguments, so a text is at a place in each. */
  const places = new Map<string, number>();
  for (const [i, { name, parameters }] of functions.entries()) {
    const part = argumentsOf(parameters, kind, notation, `call-${i}`, work);
    if (part.kind === 'unservable') return work.exhausted ? { kind: 'unservable', why: part.why } : { ...part, at: i };
    parts.push(part);
    if (part.nodes) values.push(part.nodes);
    if (name === syntax.userRecipient || name === syntax.answerTool)
      return { kind: 'unservable', why: 'has a name that means something else to this model: give it another.', at: i };
    const most = (places.get(name) ?? 0) + part.stacks;
    // Nested elements are read by their function's own schema.
    if (most > MAX_STACKS || (kind === 'nested' && places.has(name)))
      return { kind: 'unservable', why: 'has too many tools of one name: give each tool its own name.' };
    places.set(name, most);
    // Checked early: a hostile tool list costs no more than one hostile schema.
    for (const rule of part.rules) {
      if (typeof rule !== 'string' || written.has(rule)) continue;
      written.add(rule);
      characters += rule.length;
    }
    if (characters > MAX_GRAMMAR_CHARACTERS)
      return { kind: 'unservable', why: 'is too large to be compiled to a grammar.' };
  }
  const call = functions.map(({ name }, i) => `${literal(name)} call-between ${parts[i]?.rule ?? ''}`).join(' | ');
  const further = single || syntax.next === undefined ? '' : ` (${spaced(syntax.next)} call-one)*`;
  const answers = answer ? answersOf(syntax) : '';
  const opens = [syntax.open, ...(syntax.alsoOpen ?? [])].map(spaced);
  const gap = syntax.userRecipient === undefined ? afterName : literal;
  const betweens = [syntax.between, ...(syntax.alsoBetween ?? [])].map((text) => gap(text) || '""');
  const rules = [
    ...(syntax.userRecipient === undefined
      ? [`${START} ::= (${opens.join(' | ')}) call-one${further} ${spaced(syntax.close)}${answers}`]
      : addressedRules(START, syntax.open, syntax.userRecipient, { further, answer })),
    `call-one ::= ${call}`,
    `call-between ::= ${betweens.join(' | ')}`,
    ...(syntax.lead === undefined ? [] : [`call-name ::= ${functions.map(({ name }) => literal(name)).join(' | ')}`]),
    ...SHARED,
  ];
  const text = grammarText(START, [...parts, { rule: START, rules }], beside.join('\n'));
  if (text.kind === 'unservable') return text;
  const stacks = Math.max(functions.length, ...places.values());
  // Without its root, which callGrammar adds.
  const gbnf = text.gbnf.slice(text.gbnf.indexOf('\n') + 1);
  return {
    kind: 'ok',
    gbnf,
    stacks,
    ...((kind === 'tagged' || kind === 'nested') && { values }),
  };
}

/** Alternatives to calls, each after a bar. */
function answersOf({ answer, answerTool, open, between, close }: CallSyntax): string {
  const wrapped = answer === undefined ? '' : ` | ${spaced(answer)} call-answer-unit* "\\"" call-gap "}"`;
  if (answerTool === undefined) return wrapped;
  // What it says follows, at least one character of it.
  const called = `${spaced(open)} ${literal(answerTool)} ${spaced(between)} "{" call-gap "}" ${spaced(close)}`;
  return `${wrapped} | ${called} [\\n ]{0,2} [^\\x00-\\x20] [^\\x00]*`;
}

/** White space may be left out elsewhere; in front of a letter it is what ends the function's name. */
function afterName(text: string): string {
  const [space = ''] = /^\s+(?=[\w-])/.exec(text) ?? [];
  return space === '' ? spaced(text) : `${literal(space)} ${spaced(text.slice(space.length))}`;
}

type ArgumentsGrammar =
  (Extract<SchemaGrammar, { kind: 'ok' }> & { readonly nodes?: readonly ValueNode[] }) | NoGrammar;

/** The arguments of one function, and what its values may be where their reader has to know it. */
function argumentsOf(
  parameters: unknown,
  kind: NonNullable<CallSyntax['arguments']>['kind'] | undefined,
  notation: Notation,
  prefix: string,
  work: WorkBudget,
): ArgumentsGrammar {
  const own = kind === 'tagged' && takesNone(parameters) ? withoutUnnamed(notation) : notation;
  const part = schemaGrammar(objectsOf(parameters), prefix, work, parameters, own);
  if (part.kind === 'unservable' || (kind !== 'tagged' && kind !== 'nested')) return part;
  return unlessUnservable(() => ({ ...part, nodes: valueNodes(parameters, work, kind === 'nested') }), parameters);
}

/** `properties: {}` without a word of others: how tools without parameters are declared. */
function takesNone(parameters: unknown): boolean {
  return isRecord(parameters) && isRecord(parameters['properties']) && parameters['additionalProperties'] === undefined;
}

/** Of a schema that also allows other values, such as null, its objects alone: arguments are an object. */
function objectsOf(schema: unknown): unknown {
  const { type, nullable } = schema as { readonly type?: unknown; readonly nullable?: unknown };
  return type === 'object' && nullable !== true ? schema : { type: 'object', allOf: [schema] };
}

/**
 * A grammar whose root is these rules' start, after `before`: text that is there already, or after the syntax's `lead`.
 * `or`: what may come in place of calls, after the text `orLead`; rules of one name are the same there, or one of them allows more.
 */
export function callGrammar(
  rules: string,
  {
    before = '',
    lead = '',
    or,
    orLead = '',
  }: {
    readonly before?: string;
    readonly lead?: string;
    readonly or?: GrammarPart<string>;
    readonly orLead?: string;
  } = {},
): string {
  const head = before === '' ? spaced(lead) : literal(before);
  const root = `${head === '' ? '' : `${head} `}${START}`;
  if (or === undefined) return `root ::= ${root}\n${rules}`;
  const known = new Set(rules.split('\n').map(nameOf));
  const further = or.rules.filter((rule) => !known.has(nameOf(rule)));
  return [`root ::= ${root} | ${orLead === '' ? '' : `${literal(orLead)} `}${or.rule}`, rules, ...further].join('\n');
}

function nameOf(rule: string): string {
  return rule.slice(0, rule.indexOf(' '));
}

/* The rules of a reply whose parts are each after a mark and a recipient (CallSyntax.userRecipient). */

/** What a recipient's name consists of. */
const NAME = 'A-Za-z0-9_-';

/**
 * The rule `start`, of a reply after its first mark, in terms of `call-one`. `further`: more calls after the first. `answer`:
 * it may be text for the user, and calls may follow that. A mark that is no recipient's, since no name follows, is text.
 */
function addressedRules(
  start: string,
  mark: string,
  user: string,
  { further, answer }: { readonly further: string; readonly answer: boolean },
): string[] {
  const calls = `call-one${further}`;
  if (!answer) return [`${start} ::= ${calls}`];
  const text = textUpTo(mark, 'call-said', 'call-marked').map((rule) => `${rule} | ""`);
  const [again = ''] = mark;
  // After a mark that is none the next one is looked for, as the parser does.
  const onward = Array.from(mark).length === 1 ? 'call-marked' : 'call-said-1';
  return [
    `${start} ::= ${calls} | ${literal(`${user}\n`)} call-said-0`,
    ...text,
    `call-marked ::= ${calls} | [^${inClass(again)}${NAME}] call-said-0 | ${literal(again)} ${onward} | ""`,
  ];
}
