import t from 'tap';
import { overCompletion, overContext, starting } from '../../../sidecar/api/refusals.js';

t.test('a prompt that is too long is refused in the words that clients look for', async (t) => {
  const lengths = { promptTokens: 1_234_567, asked: 10, context: 1_048_576 };
  const { message, code } = overContext(lengths, 'messages', false);
  t.equal(code, 'bad_request');
  t.match(overContext(lengths, 'messages', true), { code: 'context_length_exceeded', message, status: 400 });
  for (const words of [
    "This model's maximum context length is 1048576 tokens.",
    'The prompt has 1234567',
    'reduce the length of the messages',
    'context_length_exceeded',
  ])
    t.ok(message.includes(words), words);
});

t.test('a maximum over what the prompt leaves is not called a prompt that is too long', async (t) => {
  const { message } = overCompletion(9, 32_000, 8192, 'max_tokens');
  t.match(message, 'max_tokens is 32000, but the prompt has 9 tokens');
  t.match(message, 'max_tokens is 32000, but');
  t.notMatch(message, /maximum context length|reduce the length|context_length_exceeded/);
});

t.test('a model that was given up is not called one that still loads', async (t) => {
  t.match(starting({ state: 'cold', readyInMs: 1500 }), { code: 'cold', message: /still loading/, retryAfterMs: 1500 });
  t.match(starting({ state: 'unloaded', readyInMs: 1500 }), { message: /still loading/, retryAfterMs: 1500 });
  const lost = starting({ state: 'lost', readyInMs: 1500 });
  t.match(lost, { code: 'cold', message: /cannot be served until the operator acts/, retryAfterMs: 60_000 });
  t.notMatch(lost.message, /loading/);
});
