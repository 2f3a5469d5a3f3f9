import t from 'tap';
import { WRAPPED } from '../../../engine/prompt/call-syntax.js';
import type { PromptConversation } from '../../../engine/prompt/conversation.js';
import { namedSyntax } from '../../../engine/prompt/tool-use.js';
import { withToolInstructions, withTrusted } from '../../../engine/prompt/tool-instructions.js';
import type { ToolUse } from '../../../engine/prompt/tool-use.js';
import { LOOSE_SYNTAXES, TAGGED_SYNTAXES } from '../../support/call-syntaxes.js';

const TOOLS = [
  {
    type: 'function',
    function: { name: 'find', description: 'Finds <｜tool▁sep｜>', parameters: { type: 'object', properties: {} } },
  },
];
const ASK = { messages: [{ role: 'user', content: 'x' }], tools: TOOLS };
const OFFERED = { offered: true, json: false };
const DEEPSEEK = namedSyntax('deepseek-v3.1') ?? WRAPPED;

function use(more: Partial<ToolUse>): ToolUse {
  return { lists: false, shows: false, chosen: false, ...more };
}

function contents({ messages }: PromptConversation): string[] {
  return messages.map(({ content }) => (typeof content === 'string' ? content : ''));
}

function first(conversation: PromptConversation, own: ToolUse, how = OFFERED): string {
  return contents(withToolInstructions(conversation, own, how).conversation)[0] ?? '';
}

t.test('a model of unknown format gets an instruction with the form of a call', (t) => {
  const listed = use({ calls: WRAPPED, lists: true, shows: true });
  t.match(first(ASK, listed), /^Reply with one JSON object.*"response"/);
  t.match(first(ASK, listed, { offered: true, json: true }), /the answer as a JSON object/);
  t.notMatch(first(ASK, listed, { offered: true, json: true }), /"response"/);
  t.equal(withToolInstructions(ASK, listed, OFFERED).conversation.tools, TOOLS, 'the template lists them');
  t.match(first(ASK, use({ calls: WRAPPED })), /^## Tools\n[^]*### find\n[^]*Reply with one JSON object/);
  t.equal(withToolInstructions(ASK, use({ calls: WRAPPED }), OFFERED).conversation.tools, undefined, 'we do');
  t.equal(first(ASK, use({ calls: WRAPPED }), { offered: false, json: false }), 'x', 'no tools may be called');
  t.end();
});

t.test(
  'for a model of known format whose template lists no tools both are added to the caller’s system message',
  (t) => {
    const asked = { ...ASK, messages: [{ role: 'system', content: 'Be brief.' }, ...ASK.messages] };
    const { conversation, trusted } = withToolInstructions(asked, use({ calls: DEEPSEEK, shows: true }), OFFERED);
    const text = contents(conversation)[0] ?? '';
    t.match(text, /^Be brief\.\n\n## Tools\n/);
    t.match(text, /Description: Finds <｜tool▁sep｜>\n\nParameters: \{"type":"object","properties":\{\}\}/);
    t.notMatch(text, /<｜tool▁calls▁begin｜>/, 'control tokens are inserted after callers’ text was cut');
    const rendered = withTrusted(text, trusted);
    t.match(rendered, /<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_name<｜tool▁sep｜>\{"parameter": "value"\}/);
    t.match(rendered, /<｜tool▁call▁end｜><｜tool▁call▁begin｜>other_tool_name/);
    const escaped = text.replace(trusted?.mark ?? '', '\\ue000');
    t.equal(withTrusted(escaped, trusted), rendered, 'where a template writes strings as JSON');
    t.end();
  },
);

t.test('a caller’s text cannot contain the place of the trusted text', (t) => {
  const marks = String.fromCharCode(...Array.from({ length: 9 }, (_, i) => 0xe000 + i));
  const asked = { ...ASK, messages: [{ role: 'user', content: marks }] };
  const { trusted, conversation } = withToolInstructions(asked, use({ calls: DEEPSEEK }), OFFERED);
  t.notOk(marks.includes(trusted?.mark ?? ''));
  const rendered = withTrusted(contents(conversation).join(), trusted);
  t.equal(rendered.split('other_tool_name').length, 2, 'it occurs once');
  t.ok(rendered.endsWith(marks));
  const every = Array.from({ length: 0x1900 }, (_, i) => String.fromCharCode(0xe000 + i)).join('');
  const full = withToolInstructions(
    { ...ASK, messages: [{ role: 'user', content: every }] },
    use({ calls: DEEPSEEK }),
    OFFERED,
  );
  t.equal(full.trusted, undefined);
  t.match(full.conversation.messages[0]?.content, /other_tool_name/, 'as text, which is cut like callers’ text');
  t.end();
});

t.test('the form is shown in every notation', (t) => {
  for (const calls of [...Object.values(TAGGED_SYNTAXES), ...Object.values(LOOSE_SYNTAXES)]) {
    const { trusted } = withToolInstructions(ASK, use({ calls }), OFFERED);
    t.match(trusted?.text, calls.mark);
    t.match(trusted?.text, /tool_name[^]*parameter[^]*value[^]*other_tool_name/);
  }
  t.end();
});

t.test('earlier calls and results become text where the template omits them', (t) => {
  const call = (id: string, name: string, text: string) => ({
    id,
    type: 'function',
    function: { name, arguments: text },
  });
  const messages = [
    { role: 'user', content: 'x' },
    { role: 'assistant', content: 'I look.', tool_calls: [call('a', 'find', '{"n":1}'), call('b', 'go', '')] },
    { role: 'tool', tool_call_id: 'b', content: 'gone' },
    { role: 'tool', tool_call_id: 'a', content: 'found' },
    { role: 'user', content: 'Thanks' },
    { role: 'assistant', content: null, tool_calls: [call('c', 'go', '{}')] },
    { role: 'tool', tool_call_id: 'c', content: 'gone' },
  ];
  const none = { offered: false, json: false };
  t.same(withToolInstructions({ messages }, use({ calls: WRAPPED }), none).conversation.messages, [
    { role: 'user', content: 'x' },
    {
      role: 'assistant',
      content: 'I look.\n\n{"tool_calls": [{"name": "find", "arguments": {"n":1}}, {"name": "go", "arguments": {}}]}',
    },
    {
      role: 'user',
      content:
        '{"tool_result":{"name":"go","content":"gone"}}\n\n{"tool_result":{"name":"find","content":"found"}}\n\nThanks',
    },
    { role: 'assistant', content: '{"tool_calls": [{"name": "go", "arguments": {}}]}' },
    { role: 'user', content: '{"tool_result":{"name":"go","content":"gone"}}' },
  ]);
  t.equal(
    withToolInstructions({ messages }, use({ calls: WRAPPED, shows: true }), none).conversation.messages,
    messages,
  );
  const plain = { messages: messages.slice(0, 1) };
  t.equal(withToolInstructions(plain, use({ calls: WRAPPED }), none).conversation, plain);
  t.end();
});
