// LlamaIndex: model and agent workflow.
import assert from 'node:assert/strict';
import { tool } from '@llamaindex/core/tools';
import { OpenAI } from '@llamaindex/openai';
import { agent } from '@llamaindex/workflow';
import { z } from 'zod';
import { faultSteps } from './faults.mjs';

export default (given) => {
  const { base, key, model: name } = given;
  const model = (more = {}) =>
    new OpenAI({
      model: name,
      apiKey: key,
      baseURL: base,
      temperature: 0,
      maxTokens: 200,
      maxRetries: 0,
      supportToolCall: true,
      ...more,
    });
  const seen = [];
  const look = tool({
    name: 'look',
    description: 'Looks at a place',
    parameters: z.object({ at: z.enum(['x', 'y']) }),
    execute: (given) => (seen.push(given), 'a cat'),
  });
  const messages = [{ role: 'user', content: 'Hello' }];
  /** A reply that its schema makes long. */
  const schema = z.toJSONSchema(z.object({ all: z.array(z.number().int()).min(200) }));
  const response_format = { type: 'json_schema', json_schema: { name: 'all', schema } };
  const long = { maxTokens: 4000, additionalChatOptions: { response_format } };
  const sky = z.object({ sky: z.enum(['clear', 'grey']), degrees: z.number().int().min(-50).max(60) });
  return {
    async whole() {
      const { message, raw } = await model().chat({ messages });
      assert.ok(message.content && raw.usage.total_tokens > 0);
    },
    async streamed() {
      const llm = model({ additionalChatOptions: { stream_options: { include_usage: true } } });
      let text = '';
      let usage;
      for await (const { delta, raw } of await llm.chat({ messages, stream: true })) {
        text += delta;
        usage = raw.usage ?? usage;
      }
      assert.ok(text && usage.completion_tokens > 0);
    },
    async tools() {
      seen.length = 0;
      const llm = model({ additionalChatOptions: { tool_choice: 'required' } });
      const { message } = await llm.chat({ messages, tools: [look] });
      const [call] = message.options.toolCall;
      const result = await look.call(call.input);
      const after = await model().chat({
        tools: [look],
        messages: [
          ...messages,
          message,
          { role: 'user', content: '', options: { toolResult: { id: call.id, result, isError: false } } },
        ],
      });
      assert.ok(seen.length === 1 && after.message);
    },
    async agent() {
      seen.length = 0;
      const llm = model({ additionalChatOptions: { tool_choice: 'required' } });
      // The agent has no setting for the choice of tools, but its model has one and reads it before each step.
      const once = tool({
        name: 'look',
        description: 'Looks at a place',
        parameters: z.object({ at: z.enum(['x', 'y']) }),
        execute: (given) => {
          llm.additionalChatOptions = { tool_choice: 'none' };
          seen.push(given);
          return 'a cat';
        },
      });
      const { data } = await agent({ llm, tools: [once] }).run('Hello');
      assert.match(seen[0]?.at, /^[xy]$/);
      assert.ok(data.result !== undefined);
    },
    async structured() {
      const { message } = await model().chat({ messages, responseFormat: sky });
      assert.ok(sky.parse(JSON.parse(message.content)));
    },
    async again() {
      const { message } = await model().chat({ messages });
      assert.ok((await model().chat({ messages: [...messages, message, { role: 'user', content: 'And?' }] })).message);
    },
    /** It has no call for an abort: a stream that is left goes on to its end. */
    async leaves() {
      let pieces = 0;
      for await (const _ of await model(long).chat({ messages, stream: true })) if ((pieces += 1) === 3) break;
      assert.equal(pieces, 3);
    },
    async errors() {
      await assert.rejects(model({ temperature: 9 }).chat({ messages }), { status: 400 });
      await assert.rejects(model({ apiKey: 'ra-dev-unknown' }).chat({ messages }), { status: 401 });
    },
    ...faultSteps(given, {
      whole: (apiKey, content = 'Hello') =>
        model({ apiKey, maxRetries: 3 }).chat({ messages: [{ role: 'user', content }] }),
      /** Read to its end, which is there before the other request's retries are used up. */
      async long(apiKey, upon) {
        let pieces = 0;
        for await (const _ of await model({ ...long, maxTokens: 400, apiKey }).chat({ messages, stream: true }))
          if ((pieces += 1) === 3) await upon(() => {});
      },
    }),
  };
};
