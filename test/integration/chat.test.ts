import t from 'tap';
import { chunksOf, complete, contentOf, refusalOf, textOf } from '../support/replies.js';
import { CHAT_CONTEXT as CONTEXT, sharedSidecar } from '../support/shared-sidecar.js';
import { CHAT } from '../support/sidecar.js';

const sidecar = await sharedSidecar();
const user = (content: unknown): Readonly<Record<string, unknown>> => ({ role: 'user', content });

t.test('a whole reply has the contract’s form', async (t) => {
  const response = await sidecar.chat({ messages: [user('Hello')], temperature: 0, max_tokens: 8 });
  t.equal(response.status, 200);
  t.equal(response.headers.get('content-type'), 'application/json');
  const reply = await complete(sidecar, 'Hello', { temperature: 0, max_tokens: 8 });
  t.equal(reply.model, CHAT);
  t.equal(reply.choices.length, 1);
  const [choice] = reply.choices;
  t.match(choice, { index: 0, message: { role: 'assistant' }, finish_reason: 'length' });
  t.equal(choice.matched_stop, undefined);
  t.equal(reply.usage.completion_tokens, 8);
  t.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + 8);
  const { weight_version: version, weight_versions: versions } = reply.metadata;
  t.match(version, /^[0-9a-f]{64}$/);
  t.same(versions, [{ version, start: 0, end: 8 }]);
});

t.test('the prompt is counted as rendered, with every turn', async (t) => {
  const count = async (messages: readonly unknown[]): Promise<number> => {
    const { usage } = (await (await sidecar.chat({ messages, max_tokens: 1 })).json()) as {
      usage: { prompt_tokens: number };
    };
    return usage.prompt_tokens;
  };
  const one = await count([user('the')]);
  t.equal(await count([user('the the the')]), one + 2, 'a word more is a token more');
  t.equal(await count([user([{ type: 'text', text: 'the the the' }])]), one + 2, 'in parts as well');
  t.ok((await count([{ role: 'system', content: 'the' }, user('the')])) > one);
});

t.test('without a maximum a reply may fill the rest of the context, and no more', async (t) => {
  // A reward for repetition makes the model continue to the limit.
  const { choices, usage } = await complete(sidecar, 'Hello', { temperature: 0, frequency_penalty: -2 });
  t.equal(choices[0].finish_reason, 'length');
  t.equal(usage.total_tokens, CONTEXT);
});

t.test('a stop string ends the reply and is not part of it', async (t) => {
  const text = await textOf(sidecar, 'Hello', { temperature: 0, max_tokens: 60 });
  // From within one word into another, so that it spans tokens.
  const stop = text.slice(20, 29);
  const cut = text.slice(0, text.indexOf(stop));
  const later = text.slice(40, 49);
  for (const stops of [stop, [stop], ['never in there', later, stop]]) {
    const { choices, usage } = await complete(sidecar, 'Hello', { temperature: 0, max_tokens: 60, stop: stops });
    t.match(choices[0], { message: { content: cut }, finish_reason: 'stop', matched_stop: stop });
    t.ok(usage.completion_tokens < 60, 'and ends the generation');
  }

  const stream = await sidecar.chat({ messages: [user('Hello')], temperature: 0, max_tokens: 60, stop, stream: true });
  t.equal(contentOf(chunksOf(await stream.text())), cut, 'no part of it is sent before');
});

t.test('an end token is reported by its id', async (t) => {
  // Replies of this model end after some forty tokens on average: of ten one does.
  const seeds = Array.from({ length: 10 }, (_, seed) => seed);
  const replies = await Promise.all(seeds.map((seed) => complete(sidecar, 'Hello', { seed, max_tokens: 200 })));
  const ended = replies.find(({ choices }) => choices[0].finish_reason === 'stop');
  t.ok(ended);
  t.type(ended?.choices[0].matched_stop, 'number');
  t.notMatch(ended?.choices[0].message.content, '<|im_end|>', 'and has no text');
});

t.test('n replies to one prompt: each its own text, the prompt counted once', async (t) => {
  const options = { seed: 1, max_tokens: 20 };
  const one = await complete(sidecar, 'Hello', options);
  const three = await complete(sidecar, 'Hello', { ...options, n: 3 });
  t.same(
    three.choices.map(({ index }) => index),
    [0, 1, 2],
  );
  t.equal(new Set(three.choices.map(({ message }) => message.content)).size, 3);
  t.equal(three.choices[0].message.content, one.choices[0].message.content, 'the first equals a single reply');
  t.equal(three.usage.prompt_tokens, one.usage.prompt_tokens);
  t.ok(three.usage.completion_tokens > one.usage.completion_tokens && three.usage.completion_tokens <= 60);
  const all = await complete(sidecar, 'Hello', { temperature: 0, n: 3, max_tokens: 5 });
  t.equal(all.usage.completion_tokens, 15);
});

t.test('thought goes to reasoning_content, is counted, and is not searched for stop strings', async (t) => {
  // This model’s template begins the thought if an effort is named, and random weights never end it.
  const options = { temperature: 0, max_tokens: 12, reasoning_effort: 'low' };
  const { choices, usage } = await complete(sidecar, 'Hello', options);
  const thought = choices[0].message.reasoning_content ?? '';
  t.ok(thought.length > 12);
  t.match(choices[0], { message: { content: '' }, finish_reason: 'length' });
  t.same(usage.completion_tokens_details, { reasoning_tokens: 12 });
  const stopped = await complete(sidecar, 'Hello', { ...options, stop: thought.slice(4, 9) });
  t.equal(stopped.choices[0].message.reasoning_content, thought);

  const body = { messages: [user('Hello')], ...options, stream: true, stream_options: { include_usage: true } };
  const chunks = chunksOf(await (await sidecar.chat(body)).text());
  const deltas = chunks.flatMap((chunk) => chunk.choices.map(({ delta }) => delta));
  t.equal(deltas.map(({ reasoning_content: text }) => text ?? '').join(''), thought);
  t.equal(contentOf(chunks), '');
  t.same(chunks.at(-1)?.usage?.completion_tokens_details, { reasoning_tokens: 12 });

  const without = await complete(sidecar, 'Hello', { ...options, reasoning_effort: 'none' });
  t.equal(without.choices[0].message.reasoning_content, undefined);
  t.ok(without.choices[0].message.content.length > 12);
  t.equal(without.usage.completion_tokens_details, undefined);
});

t.test('prompt and maximum may fill the context completely', async (t) => {
  const { usage } = await complete(sidecar, 'the', { max_tokens: 1 });
  const exact = CONTEXT - usage.prompt_tokens;
  const reply = await complete(sidecar, 'the', { temperature: 0, frequency_penalty: -2, max_tokens: exact });
  t.equal(reply.usage.total_tokens, CONTEXT);
  const over = await sidecar.chat({ messages: [user('the')], max_tokens: exact + 1 });
  t.match(await refusalOf(over), { status: 400, param: 'max_tokens' });
  const named = await sidecar.chat({ messages: [user('the')], max_completion_tokens: exact + 1 });
  t.match(await refusalOf(named), { status: 400, param: 'max_completion_tokens' });
});
