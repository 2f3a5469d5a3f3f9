/** Bodies of POST /v1/messages as chat requests: what templates are given, and what params say. */
import t from 'tap';
import { MESSAGES } from '../../../sidecar/api/messages.js';
import { parseChat } from '../../../sidecar/contracts/parse.js';
import type { ChatForm, ChatRequest } from '../../../sidecar/contracts/requests.js';
import { FULL_MESSAGES, bytesOf } from '../../support/bodies.js';

const SMALL = { model: 'm', max_tokens: 5, messages: [{ role: 'user', content: 'hi' }] };

function accepted(body: unknown, form: ChatForm = 'messages'): ChatRequest {
  const parsed = parseChat(bytesOf(JSON.stringify(body)), form);
  if (parsed.kind === 'invalid') throw new Error(parsed.error.message);
  return parsed.request;
}

const params = (more: object): object => accepted({ ...SMALL, ...more }).params;

t.test('a text is a user’s message, with the defaults of chat and without a thought', async (t) => {
  const chat = parseChat(
    bytesOf('{"model":"m","max_tokens":5,"reasoning_effort":"none","messages":[{"role":"user","content":"hi"}]}'),
  );
  const { places, ...request } = accepted(SMALL);
  t.strictSame({ kind: 'ok', request }, chat);
  t.strictSame(places, [{ at: 'messages[0]', calls: [] }]);
  const nulls = { system: null, tools: null, tool_choice: null, thinking: null, output_config: null, metadata: null };
  t.strictSame(accepted({ ...SMALL, ...nulls, stop_sequences: [], top_k: 0 }), accepted(SMALL));
});

t.test(
  'blocks become messages: results before the rest of their turn, images as parts, all else as text',
  async (t) => {
    const { conversation, params, places } = accepted(FULL_MESSAGES);
    t.strictSame(conversation.messages, [
      { role: 'system', content: 'Be brief.' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'What is this?' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
          { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
        ],
      },
      { role: 'system', content: 'Later.' },
      {
        role: 'assistant',
        content:
          'Look.\n[server_tool_use: {"type":"server_tool_use","id":"st1","name":"web_search","input":{"query":"q"}}]\n' +
          '[web_search_tool_result: {"type":"web_search_tool_result","tool_use_id":"st1","content":[{"title":"t"}]}]',
        reasoning_content: 'Hm.',
        tool_calls: [
          { id: 'c1', type: 'function', function: { name: 'look', arguments: '{"x":1}' } },
          { id: 'c2', type: 'function', function: { name: 'find', arguments: '{}' } },
        ],
      },
      { role: 'tool', content: 'The tool late can be called from now on.', tool_call_id: 'c2' },
      { role: 'tool', content: 'The call failed.\na cat\nt\ns\nr', tool_call_id: 'c1' },
      {
        role: 'user',
        content: 'd\nt\nc\n[A document of the type application/pdf was here. It cannot be read.]\nAnd now?',
      },
    ]);
    t.strictSame(
      conversation.tools?.map(({ function: { name } }) => name),
      ['look', 'late'],
      'not the deferred one without a reference, nor that of another type',
    );
    t.match(places?.[3], { at: 'messages[2]', calls: ['messages[2].content[5]', 'messages[2].content[6]'] });
    t.match(params, {
      firstImage: 'messages[0].content[1]',
      maxTokens: 10,
      topK: 40,
      stops: ['END'],
      stream: true,
      user: 'u-1',
      reasoningEffort: 'low',
      calls: { required: true, name: 'look', parallel: false },
    });
  },
);

t.test('an image in a result stays a part of it', async (t) => {
  const source = { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' };
  const content = [
    { type: 'text', text: 'shot' },
    { type: 'image', source },
  ];
  const { conversation, params } = accepted({
    ...SMALL,
    messages: [
      { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input: {} }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c', is_error: true, content }] },
    ],
  });
  t.strictSame(conversation.messages[1], {
    role: 'tool',
    content: [
      { type: 'text', text: 'The call failed.' },
      { type: 'text', text: 'shot' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
    ],
    tool_call_id: 'c',
  });
  t.equal(params.firstImage, undefined, 'a model without vision is not refused for it');
});

t.test(
  'blocks of the newest API: what no model reads is left out, all else is text or an image that cannot be shown',
  async (t) => {
    const image = { type: 'image', source: { type: 'file', file_id: 'f' } };
    const { conversation, params } = accepted({
      ...SMALL,
      tools: [
        { type: 'computer_toolset_20260801' },
        { type: 'browser_toolset_20260801' },
        { name: 'f', input_schema: {} },
      ],
      messages: [
        {
          role: 'assistant',
          content: [
            { type: 'fallback', from: { model: 'a' }, to: { model: 'b' } },
            { type: 'mcp_tool_listing', mcp_server_name: 's', tools: [] },
            { type: 'text', text: 'Yes.' },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'c', content: [image, { type: 'browser_state', tabs: [] }] },
            { type: 'document', source: { type: 'content', content: [image, { type: 'text', text: 'd' }] } },
          ],
        },
      ],
    });
    t.strictSame(conversation.messages, [
      { role: 'assistant', content: 'Yes.' },
      {
        role: 'tool',
        tool_call_id: 'c',
        content: [
          { type: 'image_url', image_url: { url: '' } },
          { type: 'text', text: '[browser_state: {"type":"browser_state","tabs":[]}]' },
        ],
      },
      { role: 'user', content: '[An image was here. It cannot be seen.]\nd' },
    ]);
    t.equal(params.firstImage, undefined);
    t.equal(conversation.tools?.length, 1);
  },
);

t.test('the billing line stays where the setting keeps it', async (t) => {
  const [system] = accepted(FULL_MESSAGES, 'messages-billed').conversation.messages;
  t.match(system, { role: 'system', content: /^x-anthropic-billing-header: .*\nBe brief\.$/ });
  const forms = (['drop', 'keep'] as const).map((billingLine) =>
    MESSAGES.form({ contract: 'compatible', billingLine }),
  );
  t.strictSame(forms, ['messages', 'messages-billed']);
  const alone = [{ type: 'text', text: 'x-anthropic-billing-header: a' }];
  t.match(accepted({ ...SMALL, system: alone }).conversation.messages, [{ role: 'user' }], 'no empty system message');
});

t.test('neighbours of one role are one turn', async (t) => {
  const { conversation } = accepted({
    ...SMALL,
    messages: [
      { role: 'user', content: 'a' },
      { role: 'user', content: [{ type: 'text', text: 'b' }] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input: {} }] },
      { role: 'assistant', content: 'd' },
      { role: 'user', content: [{ type: 'text', text: 'e' }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c' }] },
      { role: 'assistant', content: [] },
    ],
  });
  t.match(conversation.messages, [
    { role: 'user', content: 'a\nb' },
    { role: 'assistant', content: 'd', tool_calls: [{ id: 'c' }] },
    { role: 'tool', tool_call_id: 'c', content: '' },
    { role: 'user', content: 'e' },
    { role: 'assistant', content: '' },
  ]);
  t.equal(conversation.messages.length, 5);
});

t.test('an input that is no object is kept as its text, which the history makes an object of', async (t) => {
  const argumentsOf = (input: unknown): unknown => {
    const call = { type: 'tool_use', id: 'c', name: 'f', input };
    const { conversation } = accepted({ ...SMALL, messages: [{ role: 'assistant', content: [call] }] });
    return conversation.messages.flatMap((message) =>
      message.role === 'assistant' ? (message.tool_calls ?? []).map(({ function: called }) => called.arguments) : [],
    )[0];
  };
  t.equal(argumentsOf('{"path": "a'), '{"path": "a', 'cut');
  t.equal(argumentsOf([1]), '[1]');
  t.equal(argumentsOf(null), 'null');
  t.equal(argumentsOf(undefined), '{}', 'absent');
});

t.test('thinking and effort', async (t) => {
  for (const [more, effort] of [
    [{ thinking: { type: 'disabled' }, output_config: { effort: 'max' } }, 'none'],
    [{ output_config: { effort: 'max' } }, 'max'],
    [{ thinking: { type: 'adaptive' }, output_config: { effort: 'low' } }, 'low'],
    [{ thinking: { type: 'adaptive' } }, undefined],
    [{ thinking: { type: 'enabled', budget_tokens: 1024 } }, 'low'],
    [{ thinking: { type: 'enabled', budget_tokens: 4096 } }, 'medium'],
    [{ thinking: { type: 'enabled', budget_tokens: 31_999 } }, 'high'],
  ] as const)
    t.match(params(more), { reasoningEffort: effort }, JSON.stringify(more));
});

t.test('choices of tools, and formats', async (t) => {
  const tools = ['a', 'b'].map((name) => ({ name, input_schema: { type: 'object' } }));
  t.match(params({ tools }), { calls: { required: false, parallel: true } });
  t.match(params({ tools, tool_choice: { type: 'any', disable_parallel_tool_use: true } }), {
    calls: { required: true, parallel: false },
  });
  const none = accepted({ ...SMALL, tools, tool_choice: { type: 'none' } });
  t.notOk('calls' in none.params || none.conversation.tools);
  const deferred = [{ ...tools[0], defer_loading: true }];
  t.match(params({ tools: deferred, tool_choice: { type: 'tool', name: 'a' } }), { calls: { name: 'a' } });
  const schema = { type: 'object', properties: {} };
  const format = { type: 'json_schema', schema };
  for (const [more, at] of [
    [{ output_config: { format } }, ['output_config', 'format', 'schema']],
    [{ output_format: format }, ['output_format', 'schema']],
  ] as const)
    t.match(accepted({ ...SMALL, ...more }), { params: { jsonObject: true }, replySchema: schema, replySchemaAt: at });
});
