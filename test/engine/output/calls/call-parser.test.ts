import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { CallParser } from '../../../../engine/output/calls/call-parser.js';
import type { CallConstraint, CallPiece } from '../../../../engine/output/calls/call-text.js';
import type { CallSyntax } from '../../../../engine/protocol/reply-format.js';
import { WRAPPED } from '../../../../engine/prompt/call-syntax.js';
import { rounds } from '../../../support/long-form.js';

const HERMES: CallSyntax = {
  mark: '<tool_call>',
  open: '<tool_call>\n{"name": "',
  between: '", "arguments": ',
  next: '}\n</tool_call>\n<tool_call>\n{"name": "',
  close: '}\n</tool_call>',
};
const LLAMA: CallSyntax = {
  mark: '',
  open: '{"name": "',
  alsoOpen: ['{"type": "function", "name": "'],
  between: '", "parameters": ',
  close: '}',
};
const MISTRAL: CallSyntax = {
  mark: '[TOOL_CALLS]',
  open: '[TOOL_CALLS][{"name": "',
  between: '", "arguments": ',
  next: ', "id": "\0"}, {"name": "',
  close: ', "id": "\0"}]',
};
const NAMED: CallSyntax = {
  mark: '[TOOL_CALLS]',
  open: '[TOOL_CALLS]',
  between: '[ARGS]',
  next: '[TOOL_CALLS]',
  close: '',
};
const SYNTAXES = { HERMES, LLAMA, MISTRAL, NAMED, WRAPPED };

interface Read {
  readonly content: string;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
  readonly complete: number;
}

/** The parser’s results for a reply that arrives in these pieces. */
function read(syntax: CallSyntax, pieces: readonly string[], hold?: CallConstraint, held = false): Read {
  const parser = new CallParser({ syntax, functions: ['look', 'go'], single: false, ...(!held && { gbnf: '' }) }, hold);
  let content = '';
  const calls: { name: string; arguments: string }[] = [];
  const add = ({ index, name, arguments: part }: CallPiece): void => {
    if (name !== undefined) calls.push({ name, arguments: '' });
    const call = calls[index];
    if (call === undefined || index !== calls.length - 1) throw new Error('out of turn');
    call.arguments += part;
  };
  for (const piece of pieces) {
    const text = parser.push(piece);
    content += text.content;
    text.calls.forEach(add);
  }
  content += parser.end().content;
  return { content, calls, complete: parser.calls };
}

function one(name: string, text: string): Read['calls'][number] {
  return { name, arguments: text };
}

t.test('calls as models write them', (t) => {
  const cases: readonly [keyof typeof SYNTAXES, string, Omit<Read, 'complete'>][] = [
    [
      'HERMES',
      '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>',
      { content: '', calls: [one('look', '{"a": 1}')] },
    ],
    [
      'HERMES',
      'I look.\n\n<tool_call>{"name":"look","arguments":{}}</tool_call>\n<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>\n',
      { content: 'I look.', calls: [one('look', '{}'), one('go', '{}')] },
    ],
    [
      'HERMES',
      '<tool_call>\n{"name": "go", "arguments": {"s": "}</tool_call>\\"{", "n": [{}]}}\n</tool_call> done',
      { content: ' done', calls: [one('go', '{"s": "}</tool_call>\\"{", "n": [{}]}')] },
    ],
    ['LLAMA', ' {"name": "look", "parameters": {"a": {}}}', { content: '', calls: [one('look', '{"a": {}}')] }],
    ['LLAMA', '{"type": "function", "name": "look", "parameters": {}}', { content: '', calls: [one('look', '{}')] }],
    [
      'MISTRAL',
      '[TOOL_CALLS][{"name": "look", "arguments": {"a": "]"}, "id": "abcdefghi"}, {"name": "go", "arguments": {}, "id": "1"}]',
      { content: '', calls: [one('look', '{"a": "]"}'), one('go', '{}')] },
    ],
    [
      'NAMED',
      'Yes. [TOOL_CALLS]look[ARGS]{"a": 1}[TOOL_CALLS]go[ARGS]{}',
      { content: 'Yes.', calls: [one('look', '{"a": 1}'), one('go', '{}')] },
    ],
    [
      'WRAPPED',
      '{"tool_calls": [{"name": "look", "arguments": {"a": 1}}, {"name": "go", "arguments": {}}]}',
      { content: '', calls: [one('look', '{"a": 1}'), one('go', '{}')] },
    ],
    [
      'WRAPPED',
      '{"response": "a\\n\\"b\\" \\u00e9\\ud83d\\ude00\\ud83d!"}',
      { content: 'a\n"b" é😀\ufffd!', calls: [] },
    ],
  ];
  for (const [name, text, expected] of cases) {
    t.same(read(SYNTAXES[name], [text]), { ...expected, complete: expected.calls.length }, text);
  }
  t.end();
});

t.test('text that is no call is content, to the last space', (t) => {
  const cases: readonly [keyof typeof SYNTAXES, string][] = [
    ['HERMES', 'a < b <tool_ca> <tool_call'],
    ['HERMES', ' <tool_call>{"name": "unknown", "arguments": {}}</tool_call>'],
    ['HERMES', 'x\n<tool_call>look</tool_call>  '],
    ['LLAMA', '{"name": "Paris", "population": 2}'],
    ['LLAMA', '{"name": "look", "population": 2}'],
    ['LLAMA', '{"type": "text", "name": "look", "parameters": {}}'],
    ['LLAMA', `{${' '.repeat(1100)}"name": "look", "parameters": {}}`],
    ['LLAMA', '{"a": 1}'],
    ['LLAMA', 'Look: {"name": "look", "parameters": {}}'],
    ['LLAMA', '\n\n'],
    ['LLAMA', `${' '.repeat(200)}{"name": "look", "parameters": {}}`],
    ['HERMES', `${' '.repeat(200)}x`],
  ];
  for (const [name, text] of cases)
    t.same(read(SYNTAXES[name], [text]), { content: text, calls: [], complete: 0 }, text);
  t.end();
});

t.test('a call without a constraint is content', (t) => {
  const refused: string[] = [];
  const hold: CallConstraint = { begin: (text) => (refused.push(text), false), end: () => t.fail('was not held') };
  const call = 'x <tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>';
  t.same(read(HERMES, Array.from(call), hold), { content: call, calls: [], complete: 0 });
  const bare = '{"name": "look", "parameters": {}}';
  t.same(read(LLAMA, Array.from(bare), hold), { content: bare, calls: [], complete: 0 });
  t.same(refused, ['<tool_call>', '{"name": "look", "parameters":']);
  t.end();
});

t.test('constrains from a call’s mark to its end', (t) => {
  const log: string[] = [];
  const hold: CallConstraint = { begin: (text) => log.push(text) > 0, end: () => log.push('end') };
  const text =
    'a<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>b<tool_call>\n{"name": "go", "arguments": {}}';
  t.same(read(HERMES, [text], hold).content, 'ab');
  t.same(log, ['<tool_call>', 'end', '<tool_call>']);
  t.end();
});

t.test('a reply that was cut off', (t) => {
  const call = '<tool_call>\n{"name": "look", "arguments": {"a": "b"}}\n</tool_call>';
  t.same(
    read(HERMES, [call.slice(0, 48)]),
    { content: '', calls: [one('look', '{"a": ')], complete: 0 },
    'within arguments',
  );
  t.same(read(HERMES, [call.slice(0, 30)]), { content: '', calls: [], complete: 0 }, 'after a mark it was a call');
  t.same(
    read(LLAMA, ['{"name": "lo']),
    { content: '{"name": "lo', calls: [], complete: 0 },
    'without one it is unknown',
  );
  const nothing = { content: '', calls: [], complete: 0 };
  t.same(read(LLAMA, ['{"name": "lo'], undefined, true), nothing, 'unless the whole reply is constrained');
  t.same(read(WRAPPED, ['{"resp'], undefined, true), nothing);
  t.same(read(HERMES, ['\n<to']), { content: '\n<to', calls: [], complete: 0 }, 'so it is with a mark');
  t.same(read(HERMES, ['\n<to'], undefined, true), nothing);
  const { content, complete } = read(HERMES, [`${call}\n<to`], undefined, true);
  t.same({ content, complete }, { content: '', complete: 1 }, 'after a call too');
  t.equal(read(HERMES, ['{"a": "<to'], undefined, true).content, '{"a": "<to', 'but not within a JSON answer');
  t.end();
});

const word = fc.constantFrom(
  'look',
  '<tool_call>',
  '<',
  ' ',
  '\n',
  '{"name": "',
  '", "arguments": ',
  '", "parameters": ',
  '{}',
  '}',
  '</tool_call>',
  '[TOOL_CALLS]',
  '[ARGS]',
  '[{',
  '"x"',
  'é',
  '😀',
  '{"tool_calls": [',
  '{"response": "',
  '\\',
  '"',
);
const argumentsText = fc
  .dictionary(fc.constantFrom('a', 'b"', '</tool_call>'), fc.jsonValue(), { maxKeys: 3 })
  .map((value) => JSON.stringify(value));

/** A text cut anywhere; between code points, as the decoder before it does. */
function cuts(text: string, seed: readonly number[]): string[] {
  const characters = Array.from(text);
  const pieces: string[] = [];
  for (let at = 0, i = 0; at < characters.length; i++) {
    const size = 1 + ((seed[i % seed.length] ?? 0) % 5);
    pieces.push(characters.slice(at, at + size).join(''));
    at += size;
  }
  return pieces;
}

const sizes = fc.array(fc.nat(50), { minLength: 1, maxLength: 12 });

for (const [name, syntax] of Object.entries(SYNTAXES)) {
  t.test(`${name}: however a text is cut, the result is the same`, (t) => {
    const text = fc.array(word, { maxLength: 20 }).map((words) => words.join(''));
    fc.assert(
      fc.property(text, sizes, (text, sizes) => {
        assert.deepEqual(read(syntax, cuts(text, sizes)), read(syntax, [text]));
      }),
      { numRuns: rounds({ short: 20, long: 300 }) },
    );
    t.end();
  });

  t.test(`${name}: parsed calls equal the written ones`, (t) => {
    const call = fc.record(
      { name: fc.constantFrom('look', 'go'), arguments: argumentsText },
      { noNullPrototype: true },
    );
    const maxLength = syntax.next === undefined ? 1 : 4;
    fc.assert(
      fc.property(fc.array(call, { minLength: 1, maxLength }), sizes, (calls, sizes) => {
        const inner = calls.map((made) => made.name + syntax.between + made.arguments).join(syntax.next);
        const text = (syntax.open + inner + syntax.close).replaceAll('\0', 'id0000001');
        assert.deepEqual(read(syntax, cuts(text, sizes)), { content: '', calls, complete: calls.length });
      }),
      { numRuns: rounds({ short: 20, long: 200 }) },
    );
    t.end();
  });
}
