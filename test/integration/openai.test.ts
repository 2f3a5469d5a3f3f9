import OpenAI, { AuthenticationError, BadRequestError, PermissionDeniedError, UnprocessableEntityError } from 'openai';
import t from 'tap';
import { CHAT_MODELS, sharedSidecar, WIDE_CHAT as CHAT } from '../support/shared-sidecar.js';
import { DECIDE } from '../support/sidecar.js';

const sidecar = await sharedSidecar();
const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
const request = {
  model: CHAT,
  temperature: 0,
  max_completion_tokens: 24,
  messages: [{ role: 'user', content: 'Hello' }],
} satisfies OpenAI.ChatCompletionCreateParams;

/** Arguments that are no JSON, which the template cannot render. */
const BROKEN_CALL = {
  role: 'assistant',
  tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{' } }],
} satisfies OpenAI.ChatCompletionMessageParam;

t.test('a whole chat and a streamed one are equal', async (t) => {
  const whole = await client.chat.completions.create(request);
  t.equal(whole.choices[0]?.message.role, 'assistant');
  const text = whole.choices[0]?.message.content ?? '';
  t.not(text, '');

  const stream = await client.chat.completions.create({
    ...request,
    stream: true,
    stream_options: { include_usage: true },
  });
  let streamed = '';
  const reasons: string[] = [];
  let usage: OpenAI.CompletionUsage | null | undefined;
  for await (const { choices, usage: counted } of stream) {
    streamed += choices[0]?.delta.content ?? '';
    reasons.push(...choices.flatMap(({ finish_reason }) => finish_reason ?? []));
    usage = counted ?? usage;
  }
  t.equal(streamed, text);
  t.same(reasons, [whole.choices[0]?.finish_reason]);
  t.same(usage, whole.usage);
});

t.test('the model list has the models that this key may chat with, and no decision model', async (t) => {
  const ids: string[] = [];
  for await (const model of client.models.list()) ids.push(model.id);
  t.same(ids, CHAT_MODELS);
});

t.test('errors have the client’s typed classes', async (t) => {
  const { completions } = client.chat;
  const stranger = client.withOptions({ apiKey: 'ra-dev-unknown' });
  const cases = [
    [AuthenticationError, 401, 'invalid_api_key', null, () => stranger.chat.completions.create(request)],
    [AuthenticationError, 401, 'invalid_api_key', null, () => stranger.models.list()],
    [BadRequestError, 400, 'bad_request', 'temperature', () => completions.create({ ...request, temperature: 3 })],
    [
      BadRequestError,
      400,
      'unsupported_endpoint',
      'model',
      () => completions.create({ ...request, model: DECIDE, stream: true }),
    ],
    [
      PermissionDeniedError,
      403,
      'model_not_entitled',
      'model',
      () => completions.create({ ...request, model: 'gpt-4' }),
    ],
    [
      UnprocessableEntityError,
      422,
      'unprocessable',
      'messages',
      () => completions.create({ ...request, messages: [...request.messages, BROKEN_CALL] }),
    ],
  ] as const;
  for (const [type, status, code, param, call] of cases) {
    const error: unknown = await call().then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    t.ok(error instanceof type, `${status} ${code}`);
    t.match(error, { status, code, param, requestID: /^[\w-]+$/ });
  }
});

t.test('a stream that its reader aborts ends, and so does its generation', async (t) => {
  // A reward for repetition makes the model continue to the end of its context.
  const { model, messages, temperature } = request;
  const endless = { model, messages, temperature, frequency_penalty: -2 };
  const left = sidecar.lines.filter(({ event, status }) => event === 'request' && status === 499).length;
  const cancels = await sidecar.metric('ra_sidecar_cancels_total', { model: CHAT, phase: 'decoding' });
  const stream = await client.chat.completions.create({ ...endless, stream: true });
  let chunks = 0;
  for await (const { choices } of stream) {
    t.equal(choices[0]?.finish_reason, null, 'not finished yet');
    if (++chunks === 3) stream.controller.abort();
  }
  t.ok(chunks >= 3, 'what had arrived is delivered');
  await sidecar.logged('request', left + 1, ({ status }) => status === 499);
  t.equal(await sidecar.metric('ra_sidecar_cancels_total', { model: CHAT, phase: 'decoding' }), cancels + 1);
  t.equal(await sidecar.metric('ra_sidecar_seats_busy', { model: CHAT }), 0);
  t.equal(await sidecar.metric('ra_sidecar_streams_running'), 0);
});
