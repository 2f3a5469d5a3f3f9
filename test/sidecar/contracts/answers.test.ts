import t from 'tap';
import { validateAnswer, type AnswerKind } from '../../../sidecar/contracts/answer-schemas.js';
import {
  chatChunk,
  chatCompletion,
  chunkHead,
  describedModel,
  finishChunk,
  modelList,
  roleChunk,
  toolCallChunk,
  usageChunk,
} from '../../../sidecar/contracts/answers.js';
import { contractError, errorBody } from '../../../sidecar/domain/errors.js';
import type { Json } from '../../support/bodies.js';
import { looseIn } from '../../support/replies.js';

const HEAD = { id: 'chatcmpl-1', created: 1_700_000_000, model: 'chat-1', fingerprint: 'fp' };
const USAGE = { promptTokens: 10, cachedTokens: 4, completionTokens: 6, reasoningTokens: 0 };
const BASE = { id: 'chatcmpl-1', created: 1_700_000_000, model: 'chat-1', system_fingerprint: 'fp' };

/** Fields that an answer may lack. */
const OPTIONAL =
  /(^|\.)(system_fingerprint|usage|metadata|weight_versions?|supported_parameters|matched_stop|reasoning_content|tool_calls|cost\w*|\w+_details|cached_tokens|reasoning_tokens|delta\.\w+|tool_calls\[\d\]\.index)$/;

/** Parses an answer that must fit its schema. None of its objects may have a further field, or lack one that is not optional. */
function valid(kind: AnswerKind, text: string): unknown {
  const value = JSON.parse(text) as Json;
  t.same(validateAnswer(kind, value), { ok: true, value });
  t.strictSame(looseIn(kind, value, OPTIONAL), []);
  t.notMatch(text, /[\r\n]/, 'one line, as an event needs');
  return value;
}

t.test('a completion', async (t) => {
  const call = { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } } as const;
  const text = chatCompletion(
    HEAD,
    [
      { content: 'Hi "there"\n', finishReason: 'stop', matchedStop: 2 },
      { content: '', reasoning: 'hm', finishReason: 'length' },
      { content: null, toolCalls: [call, call], finishReason: 'tool_calls', matchedStop: 'END' },
    ],
    { ...USAGE, reasoningTokens: 1 },
    'sha',
  );
  t.same(valid('ChatCompletion', text), {
    ...BASE,
    object: 'chat.completion',
    choices: [
      { index: 0, message: { role: 'assistant', content: 'Hi "there"\n' }, finish_reason: 'stop', matched_stop: 2 },
      { index: 1, message: { role: 'assistant', content: '', reasoning_content: 'hm' }, finish_reason: 'length' },
      {
        index: 2,
        message: {
          role: 'assistant',
          content: null,
          tool_calls: [
            { ...call, index: 0 },
            { ...call, index: 1 },
          ],
        },
        finish_reason: 'tool_calls',
        matched_stop: 'END',
      },
    ],
    usage: {
      prompt_tokens: 10,
      completion_tokens: 6,
      total_tokens: 16,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 1 },
    },
    metadata: { weight_version: 'sha', weight_versions: [{ version: 'sha', start: 0, end: 6 }] },
  });
  const costs = { input: 3_000_000_000_000n, cachedInput: 1_000_000_000_000n, output: 500_000_000_000n };
  const priced = chatCompletion(HEAD, [{ content: '', finishReason: 'stop' }], { ...USAGE, costs }, 'sha');
  t.match(valid('PricedCompletion', priced), {
    usage: { cost: 4.5, cost_details: { upstream_inference_prompt_cost: 4, upstream_inference_completions_cost: 0.5 } },
  });
});

t.test('chunks', async (t) => {
  const head = chunkHead({ ...HEAD, model: 'a/"b"' });
  const chunk = (choice: object, index = 0) => ({
    ...BASE,
    model: 'a/"b"',
    object: 'chat.completion.chunk',
    choices: [{ index, finish_reason: null, ...choice }],
  });
  t.same(valid('ChatCompletionChunk', roleChunk(head, 3)), chunk({ delta: { role: 'assistant', content: '' } }, 3));
  t.same(
    valid('ChatCompletionChunk', chatChunk(head, 0, 'content', '"\n\u2028😀')),
    chunk({ delta: { content: '"\n\u2028😀' } }),
  );
  t.same(
    valid('ChatCompletionChunk', chatChunk(head, 1, 'reasoning', 'hm')),
    chunk({ delta: { reasoning_content: 'hm' } }, 1),
  );
  t.same(valid('ChatCompletionChunk', finishChunk(head, 0, 'length')), chunk({ delta: {}, finish_reason: 'length' }));
  t.same(
    valid('ChatCompletionChunk', toolCallChunk(head, 0, { index: 1, id: 'c', name: 'look', arguments: '' })),
    chunk({
      delta: { tool_calls: [{ index: 1, id: 'c', type: 'function', function: { name: 'look', arguments: '' } }] },
    }),
  );
  t.same(
    valid('ChatCompletionChunk', toolCallChunk(head, 0, { index: 1, arguments: '{"a"' })),
    chunk({ delta: { tool_calls: [{ index: 1, function: { arguments: '{"a"' } }] } }),
  );
  t.same(valid('UsageChunk', usageChunk(head, USAGE)), {
    ...chunk({}),
    choices: [],
    usage: { prompt_tokens: 10, completion_tokens: 6, total_tokens: 16, prompt_tokens_details: { cached_tokens: 4 } },
  });
});

t.test('the model list', async (t) => {
  const listed = { id: 'm', object: 'model', created: 1, owned_by: 'us' };
  t.same(valid('ModelList', modelList([{ id: 'm', created: 1, ownedBy: 'us' }])), { object: 'list', data: [listed] });
  t.same(valid('ModelList', modelList([])), { object: 'list', data: [] });
  const rates = { input: 1n, cachedInput: 0n, output: 10n ** 12n };
  const described = (template?: { tools: boolean; thoughts?: boolean }): string =>
    JSON.stringify(
      describedModel({
        id: 'm',
        kind: 'chat',
        created: 1,
        ownedBy: 'us',
        context: 9,
        takesImages: true,
        template,
        rates,
      }),
    );
  t.match(valid('DescribedModel', described()), {
    max_model_len: 9,
    architecture: { input_modalities: ['text', 'image'] },
    pricing: { prompt: '0.000000000001', completion: '1', input_cache_read: '0' },
    supported_parameters: undefined,
  });
  t.notMatch(valid('DescribedModel', described({ tools: false })), { supported_parameters: /tools|reasoning/ });
});

t.test('errors', async () => {
  valid('Error', errorBody(contractError('cold', 'The model is loading.')));
  valid('Error', errorBody(contractError('bad_request', 'model is required', { param: 'model' })));
});

t.test('the schemas refuse what is outside the contract', async (t) => {
  const completion = JSON.parse(chatCompletion(HEAD, [{ content: 'x', finishReason: 'stop' }], USAGE, 'sha')) as Record<
    string,
    unknown
  >;
  const [choice] = completion['choices'] as Record<string, unknown>[];
  for (const [change, path] of [
    [{ extra: 1 }, ''],
    [{ choices: Array(17).fill(choice) }, 'choices'],
    [{ system_fingerprint: 'f'.repeat(121) }, 'system_fingerprint'],
    [{ choices: [{ ...choice, finish_reason: 'eos' }] }, 'choices[0].finish_reason'],
    [{ choices: [{ ...choice, message: { role: 'assistant' } }] }, 'choices[0].message.content'],
    [{ usage: { prompt_tokens: 1 } }, 'usage.completion_tokens'],
  ] as const)
    t.match(validateAnswer('ChatCompletion', { ...completion, ...change }), { ok: false, path }, path);
  const nullable = {
    ...completion,
    choices: [{ ...choice, logprobs: null, matched_stop: null }],
    system_fingerprint: null,
  };
  t.equal(validateAnswer('ChatCompletion', nullable).ok, true);
  const piece = (call: object) => ({
    ...BASE,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta: { tool_calls: [call] }, finish_reason: null }],
  });
  t.equal(validateAnswer('ChatCompletionChunk', piece({ index: 0, function: { name: 'x', arguments: '' } })).ok, false);
  t.equal(
    validateAnswer('ChatCompletionChunk', piece({ index: 0, id: 'c', type: 'function', function: { arguments: '' } }))
      .ok,
    false,
  );
  t.match(validateAnswer('Error', { error: { message: '', type: 'quota', code: null, param: null } }), { ok: false });
});
