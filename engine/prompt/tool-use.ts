/** How tools are shown to a model, and how it calls them: found from its template, or set by the operator. */
import type { CallSyntax, TaggedArguments } from '../protocol/reply-format.js';
import { familyOf, familySyntaxes } from './call-families.js';
import type { Render } from './call-probes.js';
import { callSyntaxOf, WRAPPED } from './call-syntax.js';

export interface ToolUse {
  /** How the model writes calls; absent: it is given no tools. */
  readonly calls?: CallSyntax;
  /** The template lists the tools. Otherwise a system message that this module writes lists them. */
  readonly lists: boolean;
  /** The template writes earlier calls and their results in its own way. Otherwise they are written as text. */
  readonly shows: boolean;
  /** Stands, with a line end after it, in front of what a reply says to the user, whether tools are offered or not. */
  readonly userRecipient?: string;
  /** The format is the operator's choice. */
  readonly chosen: boolean;
}

/** `found`: what the template does. `format`: `models[].toolFormat`. `source`: the template's own. */
export function toolUseOf(
  source: string,
  { lists, shows }: Pick<ToolUse, 'lists' | 'shows'>,
  format: string,
  render: Render,
): ToolUse {
  const chosen = format !== 'auto';
  const calls = format === 'json' ? WRAPPED : chosen ? namedSyntax(format) : callSyntaxOf(source, render);
  const { userRecipient } = familyOf(source) ?? {};
  return { ...(calls && { calls }), lists, shows, chosen, ...(userRecipient !== undefined && { userRecipient }) };
}

/** How a model calls tools, in one line for the operator. `native`: in its own format. `chosen`: by the operator. */
export interface CallFormatText {
  readonly native: boolean;
  readonly chosen: boolean;
  readonly says: string;
}

const NOTATIONS = {
  json: 'as JSON',
  tagged: 'one by one between tags',
  nested: 'as nested elements',
  bare: 'as an object without quotes around keys',
  keywords: 'by name as in Python',
} as const;

const LISTED = '; its template lists no tools, so that a system message does';
const TEXT = ', and earlier calls and results as plain text';

/** `use`: as found from the template, or as the operator chose. */
export function callFormatText({ calls, lists, shows, chosen }: ToolUse): CallFormatText {
  if (calls === undefined)
    return { native: false, chosen, says: 'none, as toolFormat says: requests with tools get 422' };
  const listed = `${lists ? '' : LISTED}${shows ? '' : TEXT}`;
  if (calls.answer !== undefined) {
    const why = chosen ? 'as toolFormat says' : 'since the format of its own is not known';
    return { native: false, chosen, says: `calls by a JSON instruction in the prompt, ${why}${listed}` };
  }
  const mark = calls.mark === '' ? "at the reply's beginning" : `after ${calls.mark}`;
  const notation = NOTATIONS[calls.arguments?.kind ?? 'json'];
  const several = calls.next === undefined ? 'one call a reply' : 'several calls a reply';
  const whose = chosen ? 'the format that toolFormat names' : 'its own format';
  return { native: true, chosen, says: `${whose}: calls ${mark}, arguments ${notation}, ${several}${listed}` };
}

/**
 * Formats of calls that an operator can name (`models[].toolFormat`), for templates from which the format is found wrongly or
 * not at all. Those that templates do not show come from the families (call-families.ts).
 */

function tagged(open: string, between: string, close: string, json = between): TaggedArguments {
  const texts = { string: between, number: json, boolean: json, array: json, object: json, null: json };
  return { kind: 'tagged', open, between: texts, close };
}

const FOUND = {
  hermes: {
    mark: '<tool_call>',
    open: '<tool_call>\n{"name": "',
    between: '", "arguments": ',
    next: '}\n</tool_call>\n<tool_call>\n{"name": "',
    close: '}\n</tool_call>',
  },
  llama: {
    mark: '',
    open: '{"name": "',
    alsoOpen: ['{"type": "function", "name": "'],
    between: '", "parameters": ',
    close: '}',
  },
  mistral: {
    mark: '[TOOL_CALLS]',
    open: '[TOOL_CALLS][{"name": "',
    between: '", "arguments": ',
    next: ', "id": "\0"}, {"name": "',
    close: ', "id": "\0"}]',
  },
  'mistral-args': {
    mark: '[TOOL_CALLS]',
    open: '[TOOL_CALLS]',
    between: '[ARGS]',
    next: '[TOOL_CALLS]',
    close: '',
  },
  'qwen3-coder': {
    mark: '<tool_call>',
    open: '<tool_call>\n<function=',
    between: '>\n',
    next: '\n</function>\n</tool_call>\n<tool_call>\n<function=',
    close: '\n</function>\n</tool_call>',
    arguments: tagged('<parameter=', '>\n', '\n</parameter>'),
    alsoOpen: ['<function='],
  },
  glm: {
    mark: '<tool_call>',
    open: '<tool_call>',
    between: '\n',
    next: '\n</tool_call>\n<tool_call>',
    close: '\n</tool_call>',
    arguments: tagged('<arg_key>', '</arg_key>\n<arg_value>', '</arg_value>'),
  },
  'minimax-m2': {
    mark: '<minimax:tool_call>',
    open: '<minimax:tool_call>\n<invoke name="',
    between: '">\n',
    next: '\n</invoke>\n<invoke name="',
    close: '\n</invoke>\n</minimax:tool_call>',
    arguments: tagged('<parameter name="', '">', '</parameter>'),
  },
  'deepseek-v3.1': {
    mark: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>',
    open: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>',
    between: '<｜tool▁sep｜>',
    next: '<｜tool▁call▁end｜><｜tool▁call▁begin｜>',
    close: '<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
  },
  'deepseek-v3.2': {
    mark: '<｜DSML｜function_calls>',
    open: '<｜DSML｜function_calls>\n<｜DSML｜invoke name="',
    between: '">\n',
    next: '\n</｜DSML｜invoke>\n<｜DSML｜invoke name="',
    close: '\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    arguments: tagged('<｜DSML｜parameter name="', '" string="true">', '</｜DSML｜parameter>', '" string="false">'),
  },
  'kimi-k2': {
    mark: '<|tool_calls_section_begin|><|tool_call_begin|>functions.',
    open: '<|tool_calls_section_begin|><|tool_call_begin|>functions.',
    between: ':\0<|tool_call_argument_begin|>',
    next: '<|tool_call_end|><|tool_call_begin|>functions.',
    close: '<|tool_call_end|><|tool_calls_section_end|>',
  },
} as const satisfies Readonly<Record<string, CallSyntax>>;

/** By the name that the configuration has for it. */
const NAMED: Readonly<Record<string, CallSyntax>> = { ...FOUND, ...familySyntaxes() };

/**
 * The values of `models[].toolFormat`. `auto`: found from the template. `json`: a JSON instruction in the prompt. `none`: no
 * tools.
 */
export const TOOL_FORMATS: readonly string[] = ['auto', 'json', 'none', ...Object.keys(NAMED)];

/** Undefined if it names no format. */
export function namedSyntax(name: string): CallSyntax | undefined {
  return Object.hasOwn(NAMED, name) ? NAMED[name] : undefined;
}
