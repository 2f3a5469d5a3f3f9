// The AI SDK with the providers that speak to this sidecar.
import assert from 'node:assert/strict';
import { z } from 'zod';
import { faultSteps } from './faults.mjs';

/** `sdk`: the package ai. `modelOf`: a provider's model by its id and key. `reads`: checks what the provider reads of a reply. */
export function aiSteps(sdk, modelOf, given, { structured = true, providerOptions = {}, reads } = {}) {
  const { key, model: name } = given;
  const { generateText, streamText, Output, tool, stepCountIs, isStepCount } = sdk;
  const atMost = isStepCount ?? stepCountIs;
  const hello = { model: modelOf(name, key), temperature: 0, maxOutputTokens: 200, maxRetries: 0, providerOptions };
  const prompt = 'Hello';
  const seen = [];
  const tools = {
    look: tool({
      description: 'Looks at a place',
      inputSchema: z.object({ at: z.enum(['x', 'y']), deep: z.boolean().nullable() }),
      execute: async (given) => (seen.push(given), 'a cat'),
    }),
  };
  /** A loop ends after one step by default, so the number of steps is given. */
  const loop = {
    tools,
    stopWhen: atMost(3),
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }),
  };
  /** A reply that its schema makes long. */
  const long = {
    ...hello,
    maxOutputTokens: 4000,
    output: Output.object({ schema: z.object({ all: z.array(z.number().int()).min(200) }) }),
    prompt,
    onError: () => {},
  };
  return {
    async whole() {
      const { text, usage } = await generateText({ ...hello, prompt });
      assert.ok(text && usage.totalTokens > 0);
    },
    ...(reads && {
      async reads() {
        reads(await generateText({ ...hello, prompt }));
      },
    }),
    async streamed() {
      const result = streamText({ ...hello, prompt });
      let text = '';
      for await (const piece of result.textStream) text += piece;
      assert.ok(text && (await result.usage).outputTokens > 0);
    },
    async tools() {
      seen.length = 0;
      const { steps } = await generateText({ ...hello, ...loop, system: 'Be short.', prompt });
      assert.equal(steps.length, 2);
      assert.match(seen[0]?.at, /^[xy]$/);
    },
    async toolsStreamed() {
      seen.length = 0;
      const result = streamText({ ...hello, ...loop, prompt });
      await result.consumeStream();
      assert.equal((await result.steps).length, 2);
      assert.match(seen[0]?.at, /^[xy]$/);
    },
    ...(structured && {
      async structured() {
        const schema = z.object({ sky: z.enum(['clear', 'grey']), degrees: z.number().int().min(-50).max(60) });
        const result = await generateText({ ...hello, prompt, output: Output.object({ schema }) });
        assert.ok(schema.parse(result.output));
      },
    }),
    async again() {
      const messages = [{ role: 'user', content: prompt }];
      const first = await generateText({ ...hello, ...loop, messages });
      const before = first.responseMessages ?? first.response.messages;
      const { finishReason } = await generateText({
        ...hello,
        tools,
        messages: [...messages, ...before, { role: 'user', content: 'And?' }],
      });
      assert.ok(['stop', 'length', 'tool-calls'].includes(finishReason));
    },
    async abort() {
      const stop = new AbortController();
      const result = streamText({ ...long, abortSignal: stop.signal });
      let pieces = 0;
      try {
        for await (const _ of result.textStream) if ((pieces += 1) === 3) stop.abort();
      } catch (error) {
        assert.match(error.name, /Abort/);
      }
      assert.ok(pieces < 50);
    },
    async errors() {
      await assert.rejects(generateText({ ...hello, prompt, model: modelOf('none', key) }), { statusCode: 403 });
      await assert.rejects(generateText({ ...hello, prompt, model: modelOf(name, 'ra-dev-unknown') }), {
        statusCode: 401,
      });
    },
    ...faultSteps(given, {
      whole: (secret, text = prompt) =>
        generateText({ ...hello, maxRetries: 3, model: modelOf(name, secret), prompt: text }),
      async long(secret, upon) {
        const stop = new AbortController();
        const { fullStream } = streamText({ ...long, model: modelOf(name, secret), abortSignal: stop.signal });
        let pieces = 0;
        for await (const part of fullStream) {
          if (part.type === 'error') throw part.error;
          if (part.type === 'text-delta' && (pieces += 1) === 3) await upon(() => stop.abort());
        }
      },
    }),
  };
}
