// OpenRouter's own client: chat, and its callModel(), which runs tools by Responses.
import assert from 'node:assert/strict';
import { OpenRouter } from '@openrouter/sdk';
import { stepCountIs } from '@openrouter/sdk/lib/stop-conditions';
import { tool } from '@openrouter/sdk/lib/tool';
import { z } from 'zod';
import { faultSteps } from './faults.mjs';

export default (given) => {
  const { base, key, model } = given;
  const client = (apiKey = key) => new OpenRouter({ serverURL: base, apiKey, retryConfig: { strategy: 'none' } });
  const messages = [{ role: 'user', content: 'Hello' }];
  const body = { model, messages, temperature: 0, maxTokens: 200 };
  const send = (more = {}, { apiKey = key, ...options } = {}) =>
    client(apiKey).chat.send({ chatRequest: { ...body, ...more } }, options);
  /** A reply that its schema makes long. */
  const all = { type: 'array', items: { type: 'integer' }, minItems: 200 };
  const schema = { type: 'object', properties: { all }, required: ['all'], additionalProperties: false };
  const responseFormat = { type: 'json_schema', jsonSchema: { name: 'all', schema } };
  const long = { stream: true, responseFormat, maxTokens: 4000 };
  const backoff = { initialInterval: 500, maxInterval: 5000, exponent: 2, maxElapsedTime: 50_000 };
  const retried = {
    retries: { strategy: 'backoff', backoff, retryConnectionErrors: true },
    retryCodes: ['429', '5XX'],
  };
  const parameters = z.object({ at: z.enum(['x', 'y']) });
  const look = {
    type: 'function',
    function: { name: 'look', description: 'Looks at a place', parameters: z.toJSONSchema(parameters) },
  };
  return {
    async whole() {
      const { choices, usage } = await send();
      assert.ok(choices[0].message.content && usage.totalTokens > 0);
    },
    async reads() {
      const { usage } = await send();
      assert.equal(typeof usage.cost, 'number');
    },
    async streamed() {
      let text = '';
      let usage;
      for await (const chunk of await send({ stream: true, streamOptions: { includeUsage: true } })) {
        text += chunk.choices[0]?.delta.content ?? '';
        usage = chunk.usage ?? usage;
      }
      assert.ok(text && usage.completionTokens > 0);
    },
    async tools() {
      const called = await send({ tools: [look], toolChoice: 'required' });
      const { message } = called.choices[0];
      const [call] = message.toolCalls;
      assert.match(parameters.parse(JSON.parse(call.function.arguments)).at, /^[xy]$/);
      const result = { role: 'tool', toolCallId: call.id, content: 'a cat' };
      const after = await send({ tools: [look], messages: [...messages, message, result] });
      assert.ok(after.choices[0].finishReason);
    },
    async loop() {
      const seen = [];
      const result = client().callModel({
        model,
        input: 'Hello',
        temperature: 0,
        maxOutputTokens: 200,
        tools: [
          tool({
            name: 'look',
            description: 'Looks at a place',
            inputSchema: parameters,
            execute: (given) => (seen.push(given), { found: 'a cat' }),
          }),
        ],
        // Only the first call is forced.
        toolChoice: ({ numberOfTurns }) => (numberOfTurns === 0 ? 'required' : 'none'),
        stopWhen: stepCountIs(3),
      });
      const { usage } = await result.getResponse();
      assert.match(seen[0]?.at, /^[xy]$/);
      assert.ok(usage.outputTokens > 0);
    },
    async structured() {
      const sky = z.object({ sky: z.enum(['clear', 'grey']), degrees: z.number().int().min(-50).max(60) });
      const jsonSchema = { name: 'sky', strict: true, schema: z.toJSONSchema(sky) };
      const { choices } = await send({ responseFormat: { type: 'json_schema', jsonSchema } });
      assert.ok(sky.parse(JSON.parse(choices[0].message.content)));
    },
    async again() {
      const { message } = (await send()).choices[0];
      const { choices } = await send({ messages: [...messages, message, { role: 'user', content: 'And?' }] });
      assert.equal(typeof choices[0].message.content, 'string');
    },
    async abort() {
      const stop = new AbortController();
      let pieces = 0;
      await assert.rejects(
        async () => {
          const stream = await send(long, { signal: stop.signal });
          for await (const _ of stream) if ((pieces += 1) === 3) stop.abort();
        },
        { name: 'AbortError' },
      );
      assert.ok(pieces < 50);
    },
    async errors() {
      await assert.rejects(send({}, { apiKey: 'ra-dev-unknown' }), { statusCode: 401 });
      await assert.rejects(send({ temperature: 9 }), { statusCode: 400 });
    },
    ...faultSteps(given, {
      whole: (apiKey, content = 'Hello') => send({ messages: [{ role: 'user', content }] }, { apiKey, ...retried }),
      async long(apiKey, upon) {
        const stop = new AbortController();
        let pieces = 0;
        for await (const { error } of await send(long, { apiKey, signal: stop.signal })) {
          if (error) throw error;
          if ((pieces += 1) === 3) await upon(() => stop.abort());
        }
      },
    }),
  };
};
