/** A whole sidecar with a model whose state cannot be truncated: while it is idle, its engine evaluates the last reply ahead. */
import t from 'tap';
import { architectureModel } from '../support/architectures.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const CHUNK = 64;
/** Of which a grammar allows nothing else. It is sampled in other and more tokens than it is tokenized to. */
const REPLY =
  'This is the reply, which is as long as the next prompt has to have it: more than a chunk of tokens, all of them letters.';

const model = {
  id: CHAT,
  kind: 'chat',
  file: await architectureModel('hybrid'),
  gpu: false,
  threads: 1,
  seats: 1,
  contextPerSeat: 1024,
  prefillTokensPerStep: CHUNK,
};
// Replies by a schema are in that contract.
const sidecar = await Sidecar.start(t, { config: { models: [model], contract: 'compatible' } });

interface Reply {
  readonly choices: readonly [{ readonly message: { readonly content: string } }];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
}

async function ask(messages: readonly object[]): Promise<Reply> {
  const schema = { type: 'string', enum: [REPLY] };
  const format = { type: 'json_schema', json_schema: { name: 'reply', strict: true, schema } };
  const response = await sidecar.chat({ messages, response_format: format, max_tokens: 200, temperature: 0 });
  t.equal(response.status, 200);
  return (await response.json()) as Reply;
}

t.test('the next turn reuses the reply, which was sampled', async (t) => {
  const messages = [{ role: 'user', content: 'What is the reply?' }];
  const first = await ask(messages);
  const [{ message }] = first.choices;
  t.equal(message.content, JSON.stringify(REPLY));
  const { prompt_tokens: prompt, completion_tokens: reply } = first.usage;
  const sampled = prompt + reply - 1;
  t.ok(reply > CHUNK, 'a shorter one is not evaluated ahead');
  const evaluated = (kept: number): boolean => kept > 0 && kept < sampled;
  await sidecar.reaches('ra_sidecar_kv_tokens', evaluated, { model: CHAT, use: 'kept' });
  const second = await ask([
    ...messages,
    { role: 'assistant', content: message.content },
    { role: 'user', content: 'And then?' },
  ]);
  const { prompt_tokens: next, prompt_tokens_details: details } = second.usage;
  // All but the new question. Without it nothing would be reused, since the first prompt is shorter than a chunk.
  t.ok(details.cached_tokens > prompt && details.cached_tokens > 0.8 * next, `${details.cached_tokens} of ${next}`);
});
