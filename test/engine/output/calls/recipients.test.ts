/** Replies whose parts begin with a recipient (functionary), or with the call of a tool that means an answer (command-r-plus). */
import t, { type Test } from 'tap';
import { callGrammar, callRules } from '../../../../engine/grammar/calls.js';
import { ReplyText } from '../../../../engine/output/reply-text.js';
import { compileCalls, type CallChoice } from '../../../../engine/prompt/call-format.js';
import { namedSyntax } from '../../../../engine/prompt/tool-use.js';
import type { CallSyntax } from '../../../../engine/protocol/reply-format.js';
import { Gbnf } from '../../../support/gbnf.js';
import { readCalls } from '../../../support/read-calls.js';

const FUNCTIONS = [
  { name: 'look', parameters: { type: 'object', properties: { at: { type: 'string' } }, required: ['at'] } },
  { name: 'go', parameters: { type: 'object', properties: {} } },
];
const TOOLS = FUNCTIONS.map((each) => ({ type: 'function', function: each }));
const AUTO: CallChoice = { required: false, parallel: true };
const HELD = { begin: () => true, end: () => undefined };

function syntaxOf(name: string): CallSyntax {
  const syntax = namedSyntax(name);
  if (syntax === undefined) throw new Error(name);
  return syntax;
}

const FUNCTIONARY = syntaxOf('functionary-v3.2');
const COMMAND = syntaxOf('command-r-plus');

/** The grammar of a reply, or of what follows a call's mark, and how its calls are read. */
function made(syntax: CallSyntax, choice: CallChoice = AUTO, tools: readonly object[] = TOOLS) {
  const format = compileCalls(syntax, tools, choice, undefined);
  if (format.kind !== 'ok') throw new Error(format.why);
  return { grammar: new Gbnf(format.grammar?.gbnf ?? callGrammar(format.calls.gbnf ?? '')), calls: format.calls };
}

type Expected = readonly [content: string, ...calls: readonly (readonly [string, string])[]];

/** The same in one piece, in two, and character by character. */
function reads(t: Test, syntax: CallSyntax, reply: string, [content, ...calls]: Expected): void {
  const { calls: format } = made(syntax);
  const expected = [content, calls];
  const read = (pieces: readonly string[]): unknown => {
    const all = readCalls(format, pieces, HELD);
    return [all.content, all.calls.map((call) => [call.name, call.arguments])];
  };
  t.same(read([reply]), expected, reply);
  t.same(read(Array.from(reply)), expected, 'character by character');
  for (let cut = 1; cut < reply.length; cut++) {
    const got = read([reply.slice(0, cut), reply.slice(cut)]);
    if (JSON.stringify(got) !== JSON.stringify(expected)) t.same(got, expected, `cut at ${cut}`);
  }
}

t.test('functionary: the text of a reply, and its recipient', (t) => {
  const cases: readonly (readonly [string, Expected])[] = [
    ['all\nHello, world!\n\n  all', ['Hello, world!\n\n  all']],
    ['look\n{"at": ">>>go\\n"}', ['', ['look', '{"at": ">>>go\\n"}']]],
    ['look\n{"at": "x"}>>>go\n{}', ['', ['look', '{"at": "x"}'], ['go', '{}']]],
    ['all\nI look.>>>look\n{"at": "x"}', ['I look.', ['look', '{"at": "x"}']]],
    ['all\n>>> x = 1\n>>> x\n1', ['>>> x = 1\n>>> x\n1']],
    ['all\n>>>>look\n{"at": "x"}', ['>>>>look\n{"at": "x"}']],
    ['all\n>>>>>>look\n{"at": "x"}', ['>>>', ['look', '{"at": "x"}']]],
    ['go\n{}>>>all\nDone.', ['Done.', ['go', '{}']]],
  ];
  const { grammar } = made(FUNCTIONARY);
  for (const [reply, expected] of cases) {
    reads(t, FUNCTIONARY, reply, expected);
    const reader = reply.startsWith('go') ? 'no' : 'whole';
    t.equal(grammar.reads(reply), reader, 'calls come last while they are held');
  }
  // Text that no grammar held.
  for (const reply of ['Hello there', 'look at this', 'looks\n', 'x >>>unknown\n{}'])
    reads(t, FUNCTIONARY, reply, [reply]);
  reads(t, FUNCTIONARY, 'al', ['']);
  t.end();
});

t.test('functionary: what is constrained', (t) => {
  const { grammar } = made(FUNCTIONARY);
  for (const reply of ['Hello', 'unknown\n{}', 'look{"at": "x"}', 'look\n{}', 'all\nI look.>>>unknown\n{}']) {
    t.equal(grammar.reads(reply), 'no', reply);
  }
  const required = made(FUNCTIONARY, { ...AUTO, required: true }).grammar;
  t.equal(required.reads('all\nHello'), 'no');
  t.equal(required.reads('go\n{}>>>go\n{}'), 'whole');
  const one = made(FUNCTIONARY, { ...AUTO, parallel: false }).grammar;
  t.equal(one.reads('go\n{}>>>go\n{}'), 'no');
  t.equal(one.reads('all\nI go.>>>go\n{}'), 'whole');
  const json = compileCalls(FUNCTIONARY, TOOLS, AUTO, {
    kind: 'ok',
    part: { rule: 'json', rules: ['json ::= "{}"'] },
    gbnf: '',
  });
  const held = json.kind === 'ok' && new Gbnf(json.grammar?.gbnf ?? '');
  t.equal(held && held.reads('all\n{}'), 'whole');
  t.equal(held && held.reads('go\n{}'), 'whole');
  t.equal(held && held.reads('{}'), 'no');
  t.end();
});

t.test('functionary: a recipient in front of content where no tools are offered', (t) => {
  const thought = { open: false, starts: [], ends: [], implicitEnds: [], headers: ['all\n'] };
  for (const [reply, content] of [
    ['all\nHello', 'Hello'],
    ['all\n\n all\n', '\n all\n'],
    ['Hello', 'Hello'],
    ['allow', 'allow'],
  ] as const) {
    const text = new ReplyText([], { thought });
    const pieces = [...Array.from(reply, (unit) => text.push(Buffer.from(unit)).content), text.end().content];
    t.equal(pieces.join(''), content);
  }
  t.end();
});

t.test('command-r-plus: actions, and text that looks like one', (t) => {
  const look = '{\n        "tool_name": "look",\n        "parameters": {"at": "x"}\n    }';
  const actions = `Action:\n\`\`\`json\n[\n    ${look},\n    {"tool_name": "go", "parameters": {}}\n]\`\`\``;
  const answer =
    'Action: ```json\n[\n    {\n        "tool_name": "directly-answer",\n        "parameters": {}\n    }\n]```';
  const cases: readonly (readonly [string, Expected])[] = [
    [actions, ['', ['look', '{"at": "x"}'], ['go', '{}']]],
    [`I look.\n${actions}`, ['I look.', ['look', '{"at": "x"}'], ['go', '{}']]],
    ['Action: buy milk', ['Action: buy milk']],
    [`${answer}\nIt rains. Action: none`, ['It rains. Action: none']],
  ];
  for (const [reply, expected] of cases) reads(t, COMMAND, reply, expected);
  const { grammar } = made(COMMAND);
  t.equal(grammar.reads(actions), 'whole');
  t.equal(grammar.reads(`${answer}\nIt rains.`), 'whole');
  t.equal(grammar.reads(answer), 'begun', 'an answer follows');
  t.equal(grammar.reads(actions.replace('look', 'unknown')), 'no');
  t.equal(made(COMMAND, { ...AUTO, required: true }).grammar.reads(`${answer}\nIt rains.`), 'no');
  t.end();
});

t.test('command-r-plus: an action is constrained from where it is certain', (t) => {
  const asked: string[] = [];
  const hold = { begin: (text: string) => asked.push(text) > 0, end: () => asked.push('end') };
  const { calls } = made(COMMAND);
  readCalls(calls, Array.from('Action: buy. Action:\n```json\n[{"tool_name": "go", "parameters": {}}]``` So.'), hold);
  t.same(asked, ['Action:\n```json\n[{"tool_name": "', 'end']);
  t.end();
});

t.test('names that mean something else', (t) => {
  for (const [syntax, name] of [
    [FUNCTIONARY, 'all'],
    [COMMAND, 'directly-answer'],
  ] as const) {
    const functions = [...FUNCTIONS, { name, parameters: {} }];
    const rules = callRules(syntax, functions, { single: false, answer: true });
    t.match(rules, { kind: 'unservable', why: /means something else/, at: 2 });
  }
  t.end();
});
