/**
 * Models whose calls cannot be found by rendering: the template leaves earlier calls out, or writes them otherwise than the
 * model does. llama.cpp's parsers know the same formats (common/parsers).
 */
import type { CallSyntax, TaggedArguments } from '../protocol/reply-format.js';

interface CallFamily {
  /** As an operator names it. */
  readonly name: string;
  /** Each of these stands in the source of the family's templates. */
  readonly signs: readonly string[];
  readonly syntax: CallSyntax;
}

/** gpt-oss writes a call's recipient before the channel or after it, and the content's type or not. */
const HARMONY_BETWEEN = ['commentary', 'analysis'].flatMap((channel) =>
  [' json', ' <|constrain|>json', ''].map((type) => `<|channel|>${channel}${type}<|message|>`),
);

/** Kimi K3 writes each argument's type down. */
const TYPED = Object.fromEntries(
  ['string', 'number', 'boolean', 'array', 'object', 'null'].map((type) => [type, `" type="${type}"<|sep|>`]),
) as TaggedArguments['between'];

/** In the order of asking. */
const FAMILIES: readonly CallFamily[] = [
  {
    name: 'kimi-k3',
    signs: ["open_tag('tools')", '<|close|>'],
    syntax: {
      mark: '<|open|>tools<|sep|>',
      open: '<|open|>tools<|sep|><|open|>call tool="',
      between: '" index="\0"<|sep|>',
      next: '<|close|>call<|sep|><|open|>call tool="',
      close: '<|close|>call<|sep|><|close|>tools<|sep|>',
      arguments: {
        kind: 'tagged',
        open: '<|open|>argument key="',
        between: TYPED,
        close: '<|close|>argument<|sep|>',
      },
    },
  },
  {
    name: 'gemma-4',
    signs: ['<|tool_call>call:', '<tool_call|>'],
    syntax: {
      mark: '<|tool_call>',
      open: '<|tool_call>call:',
      between: '',
      next: '<tool_call|><|tool_call>call:',
      close: '<tool_call|>',
      arguments: { kind: 'bare', quote: '<|"|>' },
    },
  },
  {
    // LFM2's template and LFM2.5's list the tools with the same words, and leave earlier calls out or write them so.
    name: 'lfm2',
    signs: ['List of tools: ', '<|im_start|>'],
    syntax: {
      mark: '<|tool_call_start|>',
      open: '<|tool_call_start|>[',
      between: '(',
      next: '), ',
      close: ')]<|tool_call_end|>',
      arguments: { kind: 'keywords' },
    },
  },
  {
    name: 'gpt-oss',
    signs: ['<|channel|>analysis', 'functions.'],
    syntax: {
      mark: 'to=functions.',
      answerLead: '<|channel|>final<|message|>',
      open: ' to=functions.',
      between: '<|channel|>commentary json<|message|>',
      alsoBetween: [...HARMONY_BETWEEN.slice(1), ' <|constrain|>json<|message|>', ' json<|message|>', '<|message|>'],
      close: '',
    },
  },
  {
    // Each call is a message to the tool.
    name: 'muse',
    signs: ['to=self<|message|>', '<atem:function_calls>'],
    syntax: {
      mark: '<atem:function_calls>',
      lead: ' to=\x01<|message|>',
      answerLead: 'to=user<|message|>',
      open: '<atem:function_calls>\n<atem:invoke name="',
      between: '">\n',
      next: '</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=\x01<|message|><atem:function_calls>\n<atem:invoke name="',
      close: '</atem:invoke>\n</atem:function_calls>',
      arguments: {
        kind: 'tagged',
        open: '<atem:parameter name="',
        between: { string: '">', number: '">', boolean: '">', array: '">', object: '">', null: '">' },
        close: '</atem:parameter>',
      },
    },
  },
  {
    name: 'solar',
    signs: ['<|tool_call:begin|>', '<|tool_call:args|>'],
    syntax: {
      // In front of all calls stands <|tool_calls|>, a control token that counts as no text.
      mark: '<|tool_call:begin|>',
      answerLead: '<|content|>',
      open: '<|tool_call:begin|>\0<|tool_call:name|>',
      between: '<|tool_call:args|>',
      next: '<|tool_call:end|><|tool_call:begin|>\0<|tool_call:name|>',
      close: '<|tool_call:end|>',
    },
  },
  {
    name: 'granite',
    signs: ['<|tool_call|>', '<|start_of_role|>'],
    syntax: {
      mark: '<|tool_call|>',
      open: '<|tool_call|>[{"name": "',
      between: '", "arguments": ',
      next: '}, {"name": "',
      close: '}]',
    },
  },
  {
    name: 'gigachat',
    signs: ['function call', '<|role_sep|>'],
    syntax: {
      mark: 'function call<|role_sep|>',
      open: 'function call<|role_sep|>\n{"name": "',
      between: '", "arguments": ',
      close: '}',
    },
  },
  {
    name: 'minimax-m3',
    signs: [']<]minimax[>[', 'to_xml('],
    syntax: {
      mark: ']<]minimax[>[<tool_call>',
      open: ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="',
      between: '">',
      next: ']<]minimax[>[</invoke>\n]<]minimax[>[<invoke name="',
      close: ']<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>',
      arguments: { kind: 'nested', prefix: ']<]minimax[>[' },
    },
  },
  {
    name: 'functionary-v3.2',
    signs: ['>>>all\\n', '>>>${recipient}'],
    syntax: { mark: '>>>', open: '>>>', userRecipient: 'all', between: '\n', next: '>>>', close: '' },
  },
  {
    name: 'command-r-plus',
    signs: ['`directly-answer`', '"tool_name": "'],
    syntax: {
      mark: 'Action:',
      ambiguous: true,
      open: 'Action:\n```json\n[\n    {\n        "tool_name": "',
      between: '",\n        "parameters": ',
      next: '\n    },\n    {\n        "tool_name": "',
      close: '\n    }\n]```',
      answerTool: 'directly-answer',
    },
  },
  {
    name: 'firefunction',
    signs: ['functools[', '+ functions'],
    syntax: {
      mark: 'functools[',
      open: 'functools[{"name": "',
      between: '", "arguments": ',
      next: '}, {"name": "',
      close: '}]',
    },
  },
];

/** Undefined if it is of none, or of one that is found by rendering. */
export function familyOf(source: string): CallSyntax | undefined {
  return FAMILIES.find(({ signs }) => signs.every((sign) => source.includes(sign)))?.syntax;
}

/** The families' formats by their names. */
export function familySyntaxes(): Readonly<Record<string, CallSyntax>> {
  return Object.fromEntries(FAMILIES.map(({ name, syntax }) => [name, syntax]));
}
