// Mastra's agent.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';
import { faultSteps } from './faults.mjs';

export default (given) => {
  const { base, key, model: name } = given;
  const modelOf = (apiKey) =>
    createOpenAICompatible({ name: 'ra', baseURL: base, apiKey, includeUsage: true, supportsStructuredOutputs: true })(
      name,
    );
  const seen = [];
  const look = createTool({
    id: 'look',
    description: 'Looks at a place',
    inputSchema: z.object({ at: z.enum(['x', 'y']) }),
    execute: async (given) => (seen.push(given), { found: 'a cat' }),
  });
  const agentOf = (more = {}) =>
    new Agent({ id: 'a', name: 'a', instructions: 'Be short.', model: modelOf(key), maxRetries: 0, ...more });
  const modelSettings = { temperature: 0, maxOutputTokens: 200, maxRetries: 0 };
  /** A reply that its schema makes long. */
  const long = {
    modelSettings: { ...modelSettings, maxOutputTokens: 4000 },
    structuredOutput: { schema: z.object({ all: z.array(z.number().int()).min(200) }) },
  };
  return {
    async whole() {
      const { text, totalUsage } = await agentOf().generate('Hello', { modelSettings });
      assert.ok(text && totalUsage.totalTokens > 0);
    },
    async streamed() {
      const result = await agentOf().stream('Hello', { modelSettings });
      let text = '';
      for await (const piece of result.textStream) text += piece;
      assert.ok(text && (await result.totalUsage).outputTokens > 0);
    },
    async tools() {
      seen.length = 0;
      const { steps } = await agentOf({ tools: { look } }).generate('Hello', {
        modelSettings,
        maxSteps: 3,
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }),
      });
      assert.ok(seen.length >= 1);
      assert.equal(steps.length, 2);
    },
    async structured() {
      const schema = z.object({ sky: z.enum(['clear', 'grey']), degrees: z.number().int().min(-50).max(60) });
      const { object } = await agentOf().generate('Hello', { modelSettings, structuredOutput: { schema } });
      assert.ok(schema.parse(object));
    },
    async again() {
      const first = await agentOf().generate('Hello', { modelSettings });
      const messages = [
        { role: 'user', content: 'Hello' },
        ...first.response.messages,
        { role: 'user', content: 'And?' },
      ];
      assert.equal(typeof (await agentOf().generate(messages, { modelSettings })).text, 'string');
    },
    async abort() {
      const stop = new AbortController();
      const result = await agentOf().stream('Hello', { ...long, abortSignal: stop.signal });
      let pieces = 0;
      for await (const _ of result.textStream) if ((pieces += 1) === 3) stop.abort();
      assert.ok(pieces < 50);
    },
    async errors() {
      const statusOf = (error) => error.statusCode ?? error.cause?.statusCode;
      await assert.rejects(
        agentOf({ model: modelOf('ra-dev-unknown') }).generate('Hello', { modelSettings }),
        (error) => statusOf(error) === 401,
      );
      await assert.rejects(
        agentOf().generate('Hello', { modelSettings: { ...modelSettings, temperature: 9 } }),
        (error) => statusOf(error) === 400,
      );
    },
    ...faultSteps(given, {
      whole: (secret, text = 'Hello') =>
        agentOf({ model: modelOf(secret), maxRetries: 3 }).generate(text, {
          modelSettings: { ...modelSettings, maxRetries: 3 },
        }),
      async long(secret, upon) {
        const stop = new AbortController();
        const agent = agentOf({ model: modelOf(secret) });
        const { fullStream } = await agent.stream('Hello', { ...long, abortSignal: stop.signal });
        let pieces = 0;
        for await (const { type, payload } of fullStream) {
          if (type === 'error') throw payload.error;
          if (type === 'text-delta' && (pieces += 1) === 3) await upon(() => stop.abort());
        }
      },
    }),
  };
};
