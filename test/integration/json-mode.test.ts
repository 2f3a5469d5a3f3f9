import OpenAI from 'openai';
import t from 'tap';
import { dataGrammar } from '../../engine/grammar/notation.js';
import { Gbnf } from '../support/gbnf.js';
import { cases } from '../support/long-form.js';
import { chunksOf, complete, contentOf, textOf } from '../support/replies.js';
import { sharedSidecar } from '../support/shared-sidecar.js';
import { CHAT } from '../support/sidecar.js';

const sidecar = await sharedSidecar();
const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
const grammar = new Gbnf(dataGrammar);
const SEEDS = cases([1, 2, 14, 23], (_, index) => index % 2 === 0);
/**
 * Which random replies end early depends on the processor and the C library: so many more seeds are tried for one that
 * does.
 */
const MOST_SEEDS = 40;
const request = {
  model: CHAT,
  max_completion_tokens: 120,
  messages: [{ role: 'user', content: 'Answer as JSON.' }],
  response_format: { type: 'json_object' },
} satisfies OpenAI.ChatCompletionCreateParams;
const by = (temperature: number, seed: number): object => ({ temperature, seed });

t.test('the reply is one JSON object, or the beginning of one', async (t) => {
  const reasons: string[] = [];
  const ask = async (temperature: number, seed: number): Promise<void> => {
    const { choices } = await client.chat.completions.create({ ...request, ...by(temperature, seed) });
    const { message, finish_reason: reason } = choices[0]!;
    const text = message.content ?? '';
    reasons.push(reason);
    t.equal(grammar.reads(text), reason === 'stop' ? 'whole' : 'begun', `${temperature}, ${seed}: ${reason}`);
    if (reason === 'stop') t.type(JSON.parse(text), 'object');
  };
  for (const temperature of [0, 1, 2]) for (const seed of SEEDS) await ask(temperature, seed);
  for (let seed = 100; seed < 100 + MOST_SEEDS && !reasons.includes('stop'); seed++) await ask(2, seed);
  t.ok(reasons.includes('stop'), 'some were finished');
  t.ok(reasons.every((reason) => reason === 'stop' || reason === 'length'));
});

t.test('the same when streamed', async (t) => {
  for (const seed of SEEDS) {
    const asked = { ...request, ...by(2, seed) };
    const whole = await client.chat.completions.create(asked);
    let streamed = '';
    let reason: string | null = null;
    for await (const { choices } of await client.chat.completions.create({ ...asked, stream: true })) {
      streamed += choices[0]?.delta.content ?? '';
      reason = choices[0]?.finish_reason ?? reason;
    }
    t.equal(streamed, whole.choices[0]?.message.content);
    t.equal(reason, whole.choices[0]?.finish_reason);
  }
});

t.test('every one of several replies is constrained from its beginning, beside others that are not', async (t) => {
  const free = { temperature: 1, seed: 5, max_tokens: 60 };
  const alone = await textOf(sidecar, 'Hello', free);
  const [{ choices }, ...plain] = await Promise.all([
    client.chat.completions.create({ ...request, n: 3, frequency_penalty: 1, ...by(1, 5) }),
    ...[1, 2].map(() => complete(sidecar, 'Hello', free)),
  ]);
  t.equal(choices.length, 3);
  for (const { message, finish_reason: reason } of choices) {
    t.equal(grammar.reads(message.content ?? ''), reason === 'stop' ? 'whole' : 'begun');
  }
  for (const { choices } of plain) t.not(choices[0].message.content.charAt(0), '{');
  t.equal(await textOf(sidecar, 'Hello', free), alone, 'and a reply after them is as it was before');
});

t.test('a finished object ends the reply by an end token', async (t) => {
  for (let seed = 0; ; seed++) {
    const options = { response_format: { type: 'json_object' }, temperature: 2, seed, max_tokens: 200 };
    const { choices, usage } = await complete(sidecar, 'Hello', options);
    if (choices[0].finish_reason !== 'stop') continue;
    t.type(choices[0].matched_stop, 'number');
    const exact = { ...options, max_tokens: usage.completion_tokens - 1 };
    const cut = (await complete(sidecar, 'Hello', exact)).choices[0];
    t.match(cut, { message: { content: choices[0].message.content }, finish_reason: 'length' }, 'which counts');
    break;
  }
});

t.test('a stop string cuts the object', async (t) => {
  const stream = await sidecar.chat({ ...request, temperature: 0, stop: '{', stream: true });
  t.equal(contentOf(chunksOf(await stream.text())), '');
});
