import t from 'tap';
import { shapeConversation } from '../../../engine/prompt/conversation.js';
import { parseChat } from '../../../sidecar/contracts/parse.js';
import type { ChatRequest } from '../../../sidecar/contracts/requests.js';
import { functionNamed } from '../../../sidecar/contracts/responses.js';
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

t.test('a text is a user’s message, with the defaults of chat', async (t) => {
  const chat = parseChat(bytesOf('{"model":"m","messages":[{"role":"user","content":"hi"}]}'));
  const { places, ...request } = accepted(SMALL);
  t.strictSame({ kind: 'ok', request }, chat);
  t.strictSame(places, [{ at: 'input', calls: [] }]);
  t.strictSame(accepted({ ...SMALL, temperature: null, tools: null, text: null, reasoning: null }), accepted(SMALL));
  t.strictSame(accepted({ ...SMALL, user: '' }), accepted(SMALL), 'no user');
});

t.test('instructions and a developer’s message are one system message where the template takes no more', async (t) => {
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
});

t.test('items become messages; consecutive ones of the assistant become one', async (t) => {
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
    { role: 'assistant', content: 'y', reasoning_content: 's', tool_calls: [call('c1', '{"x":1}'), call('c2', '{}')] },
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
    firstImage: 'input[2].content[1]',
  });
  t.strictSame(replySchema, { type: 'object' });
  t.strictSame(conversation.tools, [
    { type: 'function', function: { name: 'look', parameters: { type: 'object', properties: {} }, strict: true } },
  ]);
});

t.test('a second message of the assistant, and one after its calls, are separate', async (t) => {
  const said = (content: string): object => ({ role: 'assistant', content });
  const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' };
  const { conversation } = accepted({ model: 'm', input: [said('a'), said('b'), call, said('c')] });
  t.match(conversation.messages, [
    { role: 'assistant', content: 'a' },
    { role: 'assistant', content: 'b', tool_calls: [{ id: 'c' }] },
    { role: 'assistant', content: 'c' },
  ]);
});

t.test('a thought without content is its summary', async (t) => {
  for (const content of [[], null]) {
    const reasoning = { type: 'reasoning', summary: [{ type: 'summary_text', text: 'X' }], content };
    const { conversation } = accepted({ model: 'm', input: [reasoning, { role: 'assistant', content: 'y' }] });
    t.match(conversation.messages, [{ role: 'assistant', reasoning_content: 'X', content: 'y' }]);
  }
});

t.test('an image outside a user’s message is refused', async (t) => {
  const image = { type: 'input_image', image_url: 'https://example.com/a.png' };
  const input = (role: string): object => ({
    input: [
      { role: 'user', content: 'hi' },
      { role, content: [{ type: 'input_text', text: 'x' }, image] },
    ],
  });
  t.equal(refusal(input('user')), 'accepted');
  for (const role of ['system', 'developer', 'assistant'])
    t.equal(
      refusal(input(role)),
      'input[1].content[1] must not be an image: only messages of the role user may have images',
    );
});

const FUNCTION = { type: 'function', name: 'f', description: 'F.', parameters: { type: 'object', properties: {} } };

t.test('functions of namespaces are offered and called under a name of both, and answered by their own', async (t) => {
  const tools = [
    FUNCTION,
    { type: 'namespace', name: 'mcp__demo', description: 'Demo.', tools: [FUNCTION, { ...FUNCTION, name: 'g' }] },
    { type: 'namespace', name: 'functions', tools: [{ ...FUNCTION, name: 'wait' }] },
  ];
  const call = { type: 'function_call', call_id: 'c', name: 'f', namespace: 'mcp__demo', arguments: '{}' };
  const input = [
    { role: 'user', content: 'hi' },
    { type: 'additional_tools', role: 'developer', tools: [{ ...FUNCTION, name: 'late' }] },
    call,
    { type: 'function_call_output', call_id: 'c', output: 'x' },
  ];
  const choice = { type: 'function', name: 'g', namespace: 'mcp__demo' };
  const { params, conversation, toolPlaces } = accepted({ model: 'm', input, tools, tool_choice: choice });
  const offered = conversation.tools?.map(({ function: { name, description } }) => [name, description]);
  t.strictSame(offered, [
    ['f', 'F.'],
    ['mcp__demo__f', 'mcp__demo: Demo.\n\nF.'],
    ['mcp__demo__g', 'F.'],
    ['wait', 'F.'],
    ['late', 'F.'],
  ]);
  t.strictSame(toolPlaces, [
    'tools[0]',
    'tools[1].tools[0]',
    'tools[1].tools[1]',
    'tools[2].tools[0]',
    'input[1].tools[0]',
  ]);
  t.match(conversation.messages[1], { role: 'assistant', tool_calls: [{ function: { name: 'mcp__demo__f' } }] });
  t.equal(params.calls?.name, 'mcp__demo__g');
  t.strictSame(
    ['f', 'mcp__demo__f', 'wait', 'late', '__proto__', 'toString'].map((name) => functionNamed(name, params)),
    [
      { name: 'f' },
      { name: 'f', namespace: 'mcp__demo' },
      { name: 'wait', namespace: 'functions' },
      { name: 'late' },
      { name: '__proto__' },
      { name: 'toString' },
    ],
  );
});

t.test('tools that are no functions are left out and named, also where no others are', async (t) => {
  const foreign = [
    { type: 'web_search' },
    { type: 'web_search' },
    { type: 'namespace', name: 'n', tools: [{ type: 'custom', name: 'c' }] },
    { type: 'not_known_yet' },
  ];
  const alone = accepted({ ...SMALL, tools: foreign });
  t.strictSame(alone.params.toolsLeftOut, ['web_search', 'custom', 'other']);
  t.strictSame(alone.conversation, accepted(SMALL).conversation);
  const { params, conversation } = accepted({ ...SMALL, tools: [...foreign, FUNCTION] });
  t.strictSame(params.toolsLeftOut, ['web_search', 'custom', 'other']);
  t.equal(conversation.tools?.length, 1);
});

t.test('items of calls of other tools are text of the assistant, their results of the user', async (t) => {
  const input = [
    { type: 'custom_tool_call', id: 'x', status: 'completed', call_id: 'c1', name: 'apply_patch', input: '*** Begin' },
    { type: 'custom_tool_call_output', call_id: 'c1', output: [{ type: 'input_text', text: 'ok' }] },
    { type: 'web_search_call', id: 'y', status: 'completed', action: { type: 'search', query: 'q' } },
    { type: 'local_shell_call_output', call_id: 'c2', output: 'out' },
    { type: 'mcp_call', name: 'm', arguments: '{}', output: 'o', error: null },
    { type: 'compaction', encrypted_content: 'e' },
    { type: 'custom_tool_call_output', call_id: 'c3', output: [{ type: 'input_image', image_url: 'data:,' }] },
    { type: 'agent_message', author: 'a', recipient: 'b', content: [{ type: 'input_text', text: 'hi' }] },
  ];
  const { conversation } = accepted({ model: 'm', input });
  t.strictSame(conversation.messages, [
    { role: 'assistant', content: '[custom_tool_call apply_patch c1]\n*** Begin' },
    { role: 'user', content: '[custom_tool_call_output c1]\nok' },
    { role: 'assistant', content: '[web_search_call]\n{"type":"search","query":"q"}' },
    { role: 'user', content: '[local_shell_call_output c2]\nout' },
    { role: 'assistant', content: '[mcp_call m]\n{"arguments":"{}","output":"o","error":null}' },
    { role: 'user', content: '[compaction]\nIts content is encrypted and cannot be read here.' },
    { role: 'user', content: '[custom_tool_call_output c3]\n[An image is left out here.]' },
    {
      role: 'user',
      content: '[agent_message]\n{"author":"a","recipient":"b","content":[{"type":"input_text","text":"hi"}]}',
    },
  ]);
});

t.test('a thought that is encrypted says nothing, and images and files in outputs are parts or a line', async (t) => {
  const input = [
    { role: 'user', content: 'hi' },
    { type: 'reasoning', summary: [], encrypted_content: 'e' },
    { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
    {
      type: 'function_call_output',
      call_id: 'c',
      output: [
        { type: 'input_text', text: 'a' },
        { type: 'input_image', image_url: 'data:image/png;base64,AA', detail: 'original' },
        { type: 'input_file', file_id: 'f' },
        { type: 'input_audio', audio_url: 'data:audio/wav;base64,AA' },
        { type: 'encrypted_content', encrypted_content: 'e' },
      ],
    },
    { type: 'function_call_output', call_id: 'c', output: null },
  ];
  const { params, conversation } = accepted({ model: 'm', input });
  t.equal(params.firstImage, undefined, 'a model without vision is not refused for it');
  const [, called, result, empty] = conversation.messages;
  t.match(called, { role: 'assistant', content: null });
  t.notOk(called && 'reasoning_content' in called);
  t.strictSame(result, {
    role: 'tool',
    tool_call_id: 'c',
    content: [
      { type: 'text', text: 'a' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
      { type: 'text', text: '[A file is left out here: files cannot be read.]' },
      { type: 'text', text: '[A recording is left out here: audio cannot be heard.]' },
      { type: 'text', text: '[A part is left out here: it is encrypted.]' },
    ],
  });
  t.match(empty, { role: 'tool', content: '' });
});
