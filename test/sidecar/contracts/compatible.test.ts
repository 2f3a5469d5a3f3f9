import t from 'tap';
import { shapeConversation } from '../../../engine/prompt/conversation.js';
import { CHAT } from '../../../sidecar/api/chat.js';
import { parseChat } from '../../../sidecar/contracts/parse.js';
import type { ChatRequest } from '../../../sidecar/contracts/requests.js';
import { bytesOf } from '../../support/bodies.js';
import { SHAPE } from '../../support/prompt-shape.js';

const HI = [{ role: 'user', content: 'hi' }];
function accepted(body: object): ChatRequest {
  const parsed = parseChat(bytesOf(JSON.stringify({ model: 'm', messages: HI, ...body })), 'compatible');
  if (parsed.kind === 'invalid') throw new Error(parsed.error.message);
  return parsed.request;
}

function refusal(body: object, form: 'chat' | 'compatible' = 'compatible'): string {
  const parsed = parseChat(bytesOf(JSON.stringify({ model: 'm', messages: HI, ...body })), form);
  return parsed.kind === 'invalid' ? parsed.error.message : 'accepted';
}

t.test('fields that clients add and fields that are null change nothing', async (t) => {
  const plain = accepted({});
  for (const body of [
    { max_tokens: null, temperature: null, stop: null, user: null, seed: null, response_format: null },
    { tools: [], logprobs: false, top_logprobs: null, logit_bias: {}, modalities: ['text'], audio: null },
    { metadata: { a: 'b' }, service_tier: null, store: true, prompt_cache_key: '', safety_identifier: 's' },
    { verbosity: 'low', prediction: { type: 'content', content: 'x' }, top_k: 0, min_p: 0, stream_options: {} },
    { stop: [], user: '' },
    { tools: null, functions: null, function_call: null, chat_template_kwargs: null },
    { ignore_eos: false, min_tokens: 0, best_of: 1, stop_token_ids: [], skip_special_tokens: true, plugins: [] },
    { thinking: { type: 'adaptive' }, reasoning: {}, thinking_token_budget: -1, client_metadata: { a: 'b' } },
    { stream_options: { continuous_usage_stats: true } },
  ])
    t.strictSame(accepted(body), plain, Object.keys(body).join());
});

t.test('the tier that a client asks for', async (t) => {
  const tierOf = (tier: unknown): unknown => accepted({ service_tier: tier }).params.tier;
  t.same(['flex', 'priority', 'auto', 'default', 'scale', '', null].map(tierOf), [
    ...['flex', 'priority', 'default', 'default', 'default', 'default'],
    undefined,
  ]);
});

t.test('the id of a session that a client sends', async (t) => {
  const idOf = (body: object): unknown => accepted(body).params.sessionId;
  t.equal(idOf({ prompt_cache_key: 'k', metadata: { user_id: 'u' } }), 'k');
  t.equal(idOf({ metadata: { user_id: 'u' } }), 'u');
  t.equal(idOf({ metadata: { user_id: 7 } }), undefined);
  t.equal(idOf({ prompt_cache_key: null, metadata: null }), undefined);
});

t.test('messages as clients send them back', async (t) => {
  const call = { id: 'a', type: 'function', function: { name: 'look', arguments: '{}' } };
  const { conversation } = accepted({
    messages: [
      {
        role: 'developer',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: '' },
        ],
      },
      { role: 'user', content: '' },
      {
        role: 'assistant',
        content: 'x',
        refusal: null,
        parsed: null,
        index: 0,
        annotations: [],
        audio: null,
        tool_calls: null,
      },
      { role: 'assistant', content: null, refusal: 'no' },
      { role: 'assistant', content: null, tool_calls: [{ ...call, index: 0 }], function_call: null },
      { role: 'tool', content: [{ type: 'text', text: 'r' }], tool_call_id: 'a', name: 'look' },
      { role: 'assistant', content: [{ type: 'text', text: 'y' }], reasoning: 'hm', tool_calls: [] },
    ],
  });
  t.strictSame(conversation.messages, [
    { role: 'system', content: 'a\n' },
    { role: 'user', content: '' },
    { role: 'assistant', content: 'x' },
    { role: 'assistant', content: 'no' },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', content: 'r', tool_call_id: 'a' },
    { role: 'assistant', content: 'y', reasoning_content: 'hm' },
  ]);
  t.equal((shapeConversation(conversation, SHAPE).messages[1] as { content: unknown }).content, '', 'not nothing');
});

t.test('fields that other servers and frameworks wrote into a history change nothing', async (t) => {
  /** A history whose messages, parts and calls have some more fields. */
  const history = (more: object): object[] => {
    const text = (said: string): object => ({ type: 'text', text: said, ...more });
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' }, ...more };
    const call = { ...more, id: 'a', type: 'function', function: { name: 'add', arguments: '{}' } };
    return [
      { role: 'system', content: [text('s')], ...more },
      { role: 'user', content: [text('5 and 3?'), image], ...more },
      { role: 'assistant', content: null, tool_calls: [call], ...more },
      { role: 'tool', tool_call_id: 'a', content: [text('8')], ...more },
      { role: 'assistant', content: [text('8')], ...more },
    ];
  };
  const plain = accepted({ messages: history({}) });
  for (const more of [
    { id: 'lc_1' },
    { provider_specific_fields: { a: 1 } },
    { reasoning_details: [{ type: 'reasoning.text', text: 'x' }] },
    { cache_control: { type: 'ephemeral' } },
    { extra_content: { google: { thought_signature: 'x' } } },
    { index: 0, annotations: [], parsed: { a: [] }, zcanary: 1 },
  ])
    t.strictSame(accepted({ messages: history(more) }), plain, Object.keys(more).join());
  t.equal(
    refusal({ messages: HI.map((message) => ({ ...message, tool_calls: [] })) }),
    'messages[0].tool_calls must be null: it would have no effect here',
  );
});

t.test('thoughts among the parts of a reply are its thought', async (t) => {
  const reply = (content: readonly object[], more: object = {}): unknown =>
    accepted({ messages: [...HI, { role: 'assistant', content, ...more }, ...HI] }).conversation.messages[1];
  const said = [
    { type: 'thinking', thinking: 'a', signature: 's' },
    { type: 'text', text: 'x' },
    { type: 'thinking', thinking: [{ type: 'text', text: 'b' }] },
    { type: 'reasoning', text: 'c' },
    { type: 'reasoning', reasoning: 'd', summary: [] },
    { type: 'redacted_thinking', data: 'e' },
    { type: 'output_text', text: 'y' },
  ];
  t.strictSame(reply(said), { role: 'assistant', content: 'x\ny', reasoning_content: 'a\nb\nc\nd' });
  t.match(reply(said, { reasoning: 'own' }), { reasoning_content: 'own' });
  const call = { id: 'a', type: 'function', function: { name: 'look', arguments: '{}' } };
  t.strictSame(reply(said.slice(0, 1), { tool_calls: [call] }), {
    role: 'assistant',
    content: null,
    reasoning_content: 'a',
    tool_calls: [call],
  });
  t.strictSame(reply([]), { role: 'assistant', content: '' });
});

t.test(
  'the billing line of Claude Code is no part of the prompt, where it is the first of several parts',
  async (t) => {
    const line = 'x-anthropic-billing-header: cc_version=1; cch=1;';
    const part = (text: string): object => ({ type: 'text', text });
    const system = (content: unknown, form: 'compatible' | 'compatible-billed' = 'compatible'): unknown => {
      const body = { model: 'm', messages: [{ role: 'system', content }, ...HI] };
      const parsed = parseChat(bytesOf(JSON.stringify(body)), form);
      return parsed.kind === 'ok' && parsed.request.conversation.messages[0]?.content;
    };
    const parts = [part(line), part('Be brief.'), part('Be kind.')];
    t.equal(system(parts), 'Be brief.\nBe kind.');
    t.equal(system(parts, 'compatible-billed'), `${line}\nBe brief.\nBe kind.`);
    t.equal(system(parts.toReversed()), `Be kind.\nBe brief.\n${line}`, 'elsewhere it is text');
    t.equal(system([part(line)]), line, 'alone it is a system message');
    t.equal(system(line), line, 'as the strict contract has it');
    for (const [billingLine, form] of [
      ['drop', 'compatible'],
      ['keep', 'compatible-billed'],
    ] as const)
      t.equal(CHAT.form({ contract: 'compatible', billingLine }), form);
  },
);

t.test('fields with a meaning are used', async (t) => {
  const schema = { type: 'object', properties: { a: { type: ['string', 'null'], title: 'A', examples: ['x'] } } };
  const held = (more: object): ChatRequest =>
    accepted({ response_format: { type: 'json_schema', json_schema: { name: 'r', schema, ...more } } });
  const request = accepted({ top_k: 40, min_p: 0.05, chat_template_kwargs: { enable_thinking: false } });
  t.match(request.params, { topK: 40, minP: 0.05 });
  for (const more of [{ strict: true }, { strict: false }, { strict: null }, {}]) {
    const { params, replySchema } = held(more);
    t.ok(params.jsonObject);
    t.strictSame(replySchema, schema, `strict ${JSON.stringify(more)}: constrained in any case`);
  }
  t.strictSame(accepted({ response_format: { type: 'json_object', schema } }).replySchema, schema);
  t.strictSame(request.switches, { enable_thinking: false });
});

t.test('how much a model may think, by each API’s names', async (t) => {
  for (const [body, effort, budget] of [
    [{ reasoning_effort: 'ultra' }, 'ultra'],
    [{ reasoning: { effort: 'low', max_tokens: 9 } }, 'low', 9],
    [{ reasoning_effort: 'high', reasoning: { effort: 'low' }, thinking: { type: 'disabled' } }, 'high'],
    [{ thinking: { type: 'enabled', budget_tokens: 9 } }, 'medium', 9],
    [{ thinking: { type: 'disabled', budget_tokens: 9 } }, 'none', 9],
    [{ thinking_token_budget: 9 }, undefined, 9],
    [{ thinking_token_budget: 0 }, 'none'],
    [{ thinking_budget: 9, enable_thinking: true }, 'medium', 9],
    [{ enable_thinking: false }, 'none'],
    [{ think: 'max' }, 'max'],
    [{ think: false }, 'none'],
    [{ reasoning: { enabled: true } }, 'medium'],
  ] as const) {
    const { reasoningEffort, thoughtBudget } = accepted(body).params;
    t.strictSame([reasoningEffort, thoughtBudget], [effort, budget], JSON.stringify(body));
  }
});

t.test('usage in each chunk is asked for together with usage', async (t) => {
  t.match(accepted({ stream_options: { include_usage: true, continuous_usage_stats: true } }).params, {
    includeUsage: true,
    continuousUsage: true,
  });
  t.match(accepted({ usage: { include: true } }).params, { includeUsage: true });
});

t.test('an image in a tool’s result is a part of it', async (t) => {
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } };
  const results = [[{ type: 'text', text: 'r' }, image], [{ type: 'text', text: 'r' }], null, undefined];
  const messages = results.map((content) => ({
    role: 'tool',
    tool_call_id: 'a',
    ...(content !== undefined && { content }),
  }));
  const { params, conversation } = accepted({ messages });
  t.equal(params.firstImage, undefined);
  t.strictSame(
    conversation.messages.map(({ content }) => content),
    [[{ type: 'text', text: 'r' }, image], 'r', '', ''],
  );
});

t.test('a tool’s parameters are those of an object, wherever its schema has them', async (t) => {
  const parametersOf = (parameters: unknown): unknown =>
    accepted({ tools: [{ type: 'function', function: { name: 'f', description: null, strict: null, parameters } }] })
      .conversation.tools?.[0]?.function;
  const empty = { name: 'f', parameters: { type: 'object', properties: {} } };
  t.strictSame(parametersOf(undefined), empty);
  t.strictSame(parametersOf(null), empty);
  t.strictSame(parametersOf({ type: 'object' }), empty);
  const Point = { type: 'object', properties: { x: { type: 'number' } } };
  t.strictSame(parametersOf({ $ref: '#/$defs/Point', $defs: { Point } }), {
    name: 'f',
    parameters: { $defs: { Point }, ...Point },
  });
  const narrowed = { $ref: '#/$defs/Point', required: ['x'], $defs: { Point } };
  t.strictSame(parametersOf(narrowed), { name: 'f', parameters: { type: 'object', ...narrowed } }, 'both apply');
  const Own = { ...Point, $defs: { Other: {} } };
  const nested = { $ref: '#/$defs/Own', $defs: { Own } };
  t.strictSame(
    parametersOf(nested),
    { name: 'f', parameters: { type: 'object', ...nested } },
    'the root keeps its own',
  );
});

t.test('a part of a content that is no object is refused by its place, in the messages of each role', async (t) => {
  for (const role of ['system', 'developer', 'user', 'assistant', 'tool'])
    for (const part of [null, 1, 'text', []]) {
      const message = { role, content: [part], ...(role === 'tool' && { tool_call_id: 'c' }) };
      t.match(refusal({ messages: [message] }), 'messages[0].content[0] must be an object', `${role}: ${String(part)}`);
    }
});
