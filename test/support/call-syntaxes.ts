/** Notations of arguments of real templates (test/integration/engine/prompt/call-syntax.test.ts finds them). */
import type { CallSyntax, TaggedArguments } from '../../engine/protocol/reply-format.js';

function between(text: string, json = text): TaggedArguments['between'] {
  return { string: text, number: json, boolean: json, array: json, object: json, null: json };
}

/** By the models that use them. */
export const TAGGED_SYNTAXES = {
  'Qwen3-Coder': {
    mark: '<tool_call>',
    open: '<tool_call>\n<function=',
    alsoOpen: ['<function='],
    between: '>\n',
    next: '\n</function>\n</tool_call>\n<tool_call>\n<function=',
    close: '\n</function>\n</tool_call>',
    arguments: { kind: 'tagged', open: '<parameter=', between: between('>\n'), close: '\n</parameter>' },
  },
  GLM: {
    mark: '<tool_call>',
    open: '<tool_call>',
    between: '\n',
    next: '\n</tool_call>\n<tool_call>',
    close: '\n</tool_call>',
    arguments: {
      kind: 'tagged',
      open: '<arg_key>',
      between: between('</arg_key>\n<arg_value>'),
      close: '</arg_value>',
    },
  },
  'MiniMax-M2': {
    mark: '<minimax:tool_call>',
    open: '<minimax:tool_call>\n<invoke name="',
    between: '">\n',
    next: '\n</invoke>\n<invoke name="',
    close: '\n</invoke>\n</minimax:tool_call>',
    arguments: { kind: 'tagged', open: '<parameter name="', between: between('">'), close: '</parameter>' },
  },
  'DeepSeek-V3.2': {
    mark: '<｜DSML｜function_calls>',
    open: '<｜DSML｜function_calls>\n<｜DSML｜invoke name="',
    between: '">\n',
    next: '\n</｜DSML｜invoke>\n<｜DSML｜invoke name="',
    close: '\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    arguments: {
      kind: 'tagged',
      open: '<｜DSML｜parameter name="',
      between: between('" string="true">', '" string="false">'),
      close: '</｜DSML｜parameter>',
    },
  },
  MiniCPM5: {
    mark: '<function name="',
    open: '<function name="',
    between: '">',
    next: '</function>\n<function name="',
    close: '</function>',
    arguments: {
      kind: 'tagged',
      open: '<param name="',
      between: between('">'),
      close: '</param>',
      cdata: true,
    },
  },
} as const satisfies Readonly<Record<string, CallSyntax>>;

/** The same for notations that are close to JSON. */
export const LOOSE_SYNTAXES = {
  'Gemma 4': {
    mark: '<|tool_call>',
    open: '<|tool_call>call:',
    between: '',
    next: '<tool_call|><|tool_call>call:',
    close: '<tool_call|>',
    arguments: { kind: 'bare', quote: '<|"|>' },
  },
  LFM2: {
    mark: '<|tool_call_start|>',
    open: '<|tool_call_start|>[',
    between: '(',
    next: '), ',
    close: ')]<|tool_call_end|>',
    arguments: { kind: 'keywords' },
  },
} as const satisfies Readonly<Record<string, CallSyntax>>;

/** The same of nested elements. */
export const NESTED_SYNTAXES = {
  'MiniMax-M3': {
    mark: ']<]minimax[>[<tool_call>',
    open: ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="',
    between: '">',
    next: ']<]minimax[>[</invoke>\n]<]minimax[>[<invoke name="',
    close: ']<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>',
    arguments: { kind: 'nested', prefix: ']<]minimax[>[' },
  },
} as const satisfies Readonly<Record<string, CallSyntax>>;
