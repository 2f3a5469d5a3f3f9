// Instructor: structured outputs by tools and by JSON schema.
import assert from 'node:assert/strict';
import Instructor from '@instructor-ai/instructor';
import OpenAI from 'openai-5';
import { z } from 'zod/v3';
import { faultSteps } from './faults.mjs';

export default (given) => {
  const { base, key, model } = given;
  const client = (mode, apiKey = key, maxRetries = 0) =>
    Instructor({ client: new OpenAI({ apiKey, baseURL: base, maxRetries }), mode });
  const schema = z.object({ sky: z.enum(['clear', 'grey']), degrees: z.number().int().min(-50).max(60) });
  const plain = { model, messages: [{ role: 'user', content: 'Hello' }], temperature: 0, max_tokens: 200 };
  const request = { ...plain, max_retries: 0, response_model: { schema, name: 'Weather' } };
  const ask = (mode, more = {}, apiKey = key) => client(mode, apiKey).chat.completions.create({ ...request, ...more });
  /** A reply that its schema makes long. */
  const all = { type: 'array', items: { type: 'integer' }, minItems: 200 };
  const numbers = { type: 'object', properties: { all }, required: ['all'], additionalProperties: false };
  const response_format = { type: 'json_schema', json_schema: { name: 'all', schema: numbers } };
  const long = { ...plain, stream: true, response_format, max_tokens: 4000 };
  const steps = {
    // Without a response_model it returns the client unchanged.
    async list() {
      const ids = [];
      for await (const { id } of client('TOOLS').models.list()) ids.push(id);
      assert.ok(ids.includes(model));
    },
    async whole() {
      const { choices, usage } = await client('TOOLS').chat.completions.create(plain);
      assert.ok(choices[0].message.content && usage.total_tokens > 0);
    },
  };
  for (const mode of ['TOOLS', 'JSON_SCHEMA']) {
    steps[`structured ${mode}`] = async () => {
      const { _meta, ...answer } = await ask(mode);
      assert.ok(schema.parse(answer) && _meta.usage.total_tokens > 0);
    };
  }
  steps.streamed = async () => {
    let last;
    for await (const partial of await ask('TOOLS', { stream: true })) last = partial;
    assert.match(last.sky, /clear|grey/);
    let usage;
    const counted = { ...plain, stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client('TOOLS').chat.completions.create(counted)) usage = chunk.usage ?? usage;
    assert.ok(usage.completion_tokens > 0);
  };
  steps.again = async () => {
    const { choices } = await client('TOOLS').chat.completions.create(plain);
    const messages = [...plain.messages, choices[0].message, { role: 'user', content: 'And?' }];
    const { _meta, ...answer } = await ask('TOOLS', { messages });
    assert.ok(schema.parse(answer));
  };
  steps.abort = async () => {
    const stop = new AbortController();
    let pieces = 0;
    const stream = await client('TOOLS').chat.completions.create(long, { signal: stop.signal });
    for await (const _ of stream) if ((pieces += 1) === 3) stop.abort();
    assert.ok(pieces < 50);
  };
  steps.errors = async () => {
    const stranger = client('TOOLS', 'ra-dev-unknown').chat.completions;
    await assert.rejects(stranger.create(plain), OpenAI.AuthenticationError);
    await assert.rejects(
      client('TOOLS').chat.completions.create({ ...plain, temperature: 9 }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === 'temperature',
    );
  };
  return {
    ...steps,
    ...faultSteps(given, {
      whole: (apiKey, content = 'Hello') =>
        client('TOOLS', apiKey, 3).chat.completions.create({ ...plain, messages: [{ role: 'user', content }] }),
      async long(apiKey, upon) {
        const stop = new AbortController();
        const stream = await client('TOOLS', apiKey).chat.completions.create(long, { signal: stop.signal });
        let pieces = 0;
        for await (const _ of stream) if ((pieces += 1) === 3) await upon(() => stop.abort());
      },
    }),
  };
};
