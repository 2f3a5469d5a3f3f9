import t from 'tap';
import { shapeConversation } from '../../../engine/prompt/conversation.js';
import { parseChat } from '../../../sidecar/contracts/parse.js';
import type { ChatRequest } from '../../../sidecar/contracts/requests.js';
import { FULL_RESPONSES, bytesOf } from '../../support/bodies.js';
import { SHAPE } from '../../support/prompt-shape.js';

const SMALL = { model: 'm', input: 'hi' };

function accepted(body: unknown): ChatRequest {
  const parsed = parseChat(bytesOf(JSON.stringify(body)), 'responses');
  if (parsed.kind === 'invalid') throw new Error(parsed.error.message);
  return parsed.request;
}

function refusal(more: object): string {
  const parsed = parseChat(bytesOf(JSON.stringify({ ...SMALL, ...more })), 'responses');
  return parsed.kind === 'invalid' ? parsed.error.message : 'accepted';
}

t.test('a text is a user’s message, with the defaults of chat', (t) => {
  const chat = parseChat(bytesOf('{"model":"m","messages":[{"role":"user","content":"hi"}]}'));
  const { places, ...request } = accepted(SMALL);
  t.strictSame({ kind: 'ok', request }, chat);
  t.strictSame(places, [{ at: 'input', calls: [] }]);
  t.strictSame(accepted({ ...SMALL, temperature: null, tools: null, text: null, reasoning: null }), accepted(SMALL));
  t.strictSame(accepted({ ...SMALL, user: '' }), accepted(SMALL), 'no user');
  t.end();
});

t.test('instructions and a developer’s message are one system message where the template takes no more', (t) => {
  const input = [
    { role: 'developer', content: '' },
    { role: 'developer', content: 'dev' },
    { role: 'user', content: 'hi' },
  ];
  const { conversation } = accepted({ ...SMALL, instructions: 'core', input });
  const user = { role: 'user', content: 'hi' };
  t.strictSame(shapeConversation(conversation, { ...SHAPE, joinsSystem: true }).messages, [
    { role: 'system', content: 'core\n\ndev' },
    user,
  ]);
  t.strictSame(shapeConversation(conversation, SHAPE).messages, [
    { role: 'system', content: 'core' },
    { role: 'system', content: '' },
    { role: 'system', content: 'dev' },
    user,
  ]);
  t.end();
});

t.test('items become messages; consecutive ones of the assistant become one', (t) => {
  const { params, conversation, replySchema } = accepted(FULL_RESPONSES);
  const call = (id: string, text: string): object => ({
    id,
    type: 'function',
    function: { name: 'look', arguments: text },
  });
  t.strictSame(conversation.messages, [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'What is this?' },
    { role: 'system', content: 'x' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'And this?' },
        { type: 'image_url', image_url: { url: 'https://example.com/a.png', detail: 'low' } },
      ],
    },
    {
      role: 'assistant',
      content: 'y',
      reasoning_content: 's',
      tool_calls: [call('c1', '{"x":1}'), call('c2', '{}')],
    },
    { role: 'tool', content: 'a cat', tool_call_id: 'c1' },
    { role: 'tool', content: 'a dog', tool_call_id: 'c2' },
  ]);
  t.match(params, {
    maxTokens: 10,
    temperature: 0.5,
    topP: 0.9,
    stream: true,
    jsonObject: true,
    reasoningEffort: 'low',
    calls: { required: true, name: 'look', parallel: false },
    firstImage: 'input',
  });
  t.strictSame(replySchema, { type: 'object' });
  t.strictSame(conversation.tools, [
    { type: 'function', function: { name: 'look', parameters: { type: 'object', properties: {} }, strict: true } },
  ]);
  t.end();
});

t.test('a second message of the assistant, and one after its calls, are separate', (t) => {
  const said = (content: string): object => ({ role: 'assistant', content });
  const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' };
  const { conversation } = accepted({ model: 'm', input: [said('a'), said('b'), call, said('c')] });
  t.match(conversation.messages, [
    { role: 'assistant', content: 'a' },
    { role: 'assistant', content: 'b', tool_calls: [{ id: 'c' }] },
    { role: 'assistant', content: 'c' },
  ]);
  t.end();
});

t.test('an unknown function is refused by this route’s own path', (t) => {
  const tools = [{ type: 'function', name: 'a', parameters: { type: 'object', properties: {} } }];
  t.equal(
    refusal({ tools, tool_choice: { type: 'function', name: 'b' } }),
    'tool_choice.name must be the name of one of the tools',
  );
  t.end();
});

t.test('a thought without content is its summary', (t) => {
  for (const content of [[], null]) {
    const reasoning = { type: 'reasoning', summary: [{ type: 'summary_text', text: 'X' }], content };
    const { conversation } = accepted({ model: 'm', input: [reasoning, { role: 'assistant', content: 'y' }] });
    t.match(conversation.messages, [{ role: 'assistant', reasoning_content: 'X', content: 'y' }]);
  }
  t.end();
});

t.test('an image outside a user’s message is refused', (t) => {
  const image = { type: 'input_image', image_url: 'https://example.com/a.png' };
  const input = (role: string): object => ({
    input: [
      { role: 'user', content: 'hi' },
      { role, content: [{ type: 'input_text', text: 'x' }, image] },
    ],
  });
  t.equal(refusal(input('user')), 'accepted');
  for (const role of ['system', 'developer', 'assistant']) {
    t.equal(
      refusal(input(role)),
      'input[1].content[1] must not be an image: only messages of the role user may have images',
    );
  }
  t.end();
});

t.test('a field that needs a stored response, or a tool that runs in the server, is refused by name', (t) => {
  t.match(refusal({ previous_response_id: 'r' }), /^previous_response_id must be null: no response is stored/);
  t.match(refusal({ conversation: 'c' }), /^conversation must be null/);
  t.match(refusal({ background: true }), /^background must be false/);
  t.match(refusal({ input: [{ type: 'item_reference', id: 'x' }] }), /^input\[0\]\.type must be one of message, /);
  t.match(refusal({ tools: [{ type: 'web_search', name: 'x' }] }), /^tools\[0\]\.type must be function/);
  t.match(refusal({ tools: [{ type: 'web_search' }] }), /^tools\[0\]/);
  t.match(refusal({ messages: [] }), /^the body has `messages`, which is outside the contract/);
  t.notMatch(refusal({ zcanary: 1 }), /zcanary/);
  t.end();
});
