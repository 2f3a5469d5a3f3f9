import t from 'tap';
import { parseChat } from '../../../sidecar/contracts/parse.js';
import type { ChatRequest } from '../../../sidecar/contracts/requests.js';
import { FULL_CHAT, type Json, bytesOf, withAt } from '../../support/bodies.js';

function accepted(body: unknown): ChatRequest {
  const parsed = parseChat(bytesOf(body));
  if (parsed.kind === 'invalid') throw new Error(parsed.error.message);
  return parsed.request;
}

const SMALL = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };
const TOOLS: Json = [{ type: 'function', function: { name: 'look', parameters: { type: 'object', properties: {} } } }];

t.test('defaults', async (t) => {
  t.same(accepted(SMALL), {
    params: {
      route: 'chat',
      model: 'm',
      stream: false,
      includeUsage: false,
      n: 1,
      temperature: 1,
      topP: 1,
      frequencyPenalty: 0,
      presencePenalty: 0,
      stops: [],
      jsonObject: false,
    },
    conversation: { messages: SMALL.messages },
  });
});

t.test('every field is used', async (t) => {
  const { params, conversation } = accepted(FULL_CHAT);
  t.same(params, {
    route: 'chat',
    model: 'chat-1',
    stream: true,
    includeUsage: true,
    n: 2,
    maxTokens: 20,
    maxTokensField: 'max_completion_tokens',
    temperature: 0.7,
    topP: 0.9,
    frequencyPenalty: 0.5,
    presencePenalty: -0.5,
    seed: 7,
    stops: ['END', '\n\n'],
    jsonObject: true,
    reasoningEffort: 'low',
    calls: { required: true, name: 'look', parallel: false },
    firstImage: 'messages[1].content[1].image_url',
    user: 'u-1',
  });
  const { messages, tools } = FULL_CHAT as { messages: Json; tools: Json };
  t.same(conversation, { messages, tools });
});

t.test('max_tokens applies if max_completion_tokens is absent', async (t) => {
  t.equal(accepted({ ...SMALL, max_tokens: 3 }).params.maxTokens, 3);
  t.equal(accepted({ ...SMALL, max_tokens: 3, max_completion_tokens: 5 }).params.maxTokens, 5);
});

t.test('a single stop becomes a list', async (t) => {
  t.same(accepted({ ...SMALL, stop: 'END' }).params.stops, ['END']);
});

t.test('response_format text has no effect', async (t) => {
  t.equal(accepted({ ...SMALL, response_format: { type: 'text' } }).params.jsonObject, false);
});

t.test('tool_choice', async (t) => {
  const named = { type: 'function', function: { name: 'look' } };
  const wanted = [
    [undefined, { required: false, parallel: true }],
    ['auto', { required: false, parallel: true }],
    ['required', { required: true, parallel: true }],
    [named, { required: true, name: 'look', parallel: false }],
  ] as const;
  for (const [choice, calls] of wanted) {
    const { params, conversation } = accepted({ ...SMALL, tools: TOOLS, tool_choice: choice });
    t.same(params.calls, calls);
    t.same(conversation.tools, TOOLS);
  }
  const alone = accepted({ ...SMALL, tools: TOOLS, parallel_tool_calls: false });
  t.same(alone.params.calls, { required: false, parallel: false });
  const { params, conversation } = accepted({ ...SMALL, tools: TOOLS, tool_choice: 'none' });
  t.equal(params.calls, undefined);
  t.equal(conversation.tools, undefined, 'a template does not get tools that may not be called');
  t.equal(accepted({ ...SMALL, tool_choice: 'none' }).params.calls, undefined);
  t.equal(accepted({ ...SMALL, tool_choice: 'auto' }).params.calls, undefined);
  t.match(parseChat(bytesOf({ ...SMALL, tool_choice: 'required' })), {
    error: { message: 'tool_choice must not be required without tools', param: 'tool_choice' },
  });
  t.match(parseChat(bytesOf({ ...SMALL, tool_choice: named })), {
    error: { message: 'tool_choice.function.name must be the name of one of the tools' },
  });
});

t.test('the first image of several', async (t) => {
  const image = { type: 'image_url', image_url: { url: 'data:,x' } };
  const messages = [
    { role: 'user', content: 'text' },
    { role: 'assistant', content: 'text' },
    { role: 'user', content: [{ type: 'text', text: 'x' }] },
    { role: 'user', content: [{ type: 'text', text: 'x' }, image, image] },
    { role: 'user', content: [image] },
  ];
  t.equal(accepted({ ...SMALL, messages }).params.firstImage, 'messages[3].content[1].image_url');
  const alone = [{ role: 'user', content: [image] }];
  t.equal(accepted({ ...SMALL, messages: alone }).params.firstImage, 'messages[0].content[0].image_url');
});

t.test('a seed past 2^53 is the nearest double', async (t) => {
  const parsed = parseChat(bytesOf('{"model":"m","messages":[{"role":"user","content":"x"}],"seed":9007199254740993}'));
  t.match(parsed, { kind: 'ok', request: { params: { seed: 9007199254740992 } } });
  const whole = parseChat(
    bytesOf('{"model":"m","messages":[{"role":"user","content":"x"}],"n":2.0,"temperature":1e999}'),
  );
  t.match(whole, { error: { message: 'temperature must be a number', param: 'temperature' } });
});

t.test('a long path ends at a whole name', async (t) => {
  // A property schema with a fault at a deep place, every step a name of the contract.
  let schema: Json = { type: 'nonsense' };
  for (let i = 0; i < 50; i++) schema = { additionalProperties: schema };
  const body = withAt(
    { ...SMALL, tools: TOOLS },
    ['tools', 0, 'function', 'parameters', 'additionalProperties'],
    schema,
  );
  const parsed = parseChat(bytesOf(body));
  if (parsed.kind === 'ok') throw new Error('accepted');
  const { param, message } = parsed.error;
  t.ok(param !== null && param.length <= 256 && param.endsWith('.additionalProperties'));
  t.ok(message.length <= 2048);
  t.match(message, /\.type must be one of string/);
});
