/** The `ai` package with its provider for OpenAI’s API, on the strict contract; test/e2e/clients has more of it. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import t from 'tap';
import { sharedSidecar, WIDE_CHAT as CHAT } from '../support/shared-sidecar.js';

const sidecar = await sharedSidecar();
const provider = createOpenAICompatible({
  name: 'ra',
  baseURL: sidecar.base,
  apiKey: sidecar.key,
  includeUsage: true,
});
const model = provider(CHAT);

interface Switched {
  readonly on: boolean;
}

/** A random model calls until its token limit unless it may call only once. */
const ONE_CALL = { ra: { parallel_tool_calls: false } };

const parameters = jsonSchema<Switched>({
  type: 'object',
  properties: { on: { type: 'boolean' } },
  required: ['on'],
  additionalProperties: false,
});

t.test('text, whole and streamed, with its usage', async (t) => {
  const whole = await generateText({ model, prompt: 'Hello', maxOutputTokens: 8, temperature: 0, maxRetries: 0 });
  t.equal(whole.usage.outputTokens, 8);
  t.equal(whole.finishReason, 'length');
  const streamed = streamText({ model, prompt: 'Hello', maxOutputTokens: 8, temperature: 0, maxRetries: 0 });
  t.equal(await streamed.text, whole.text);
  t.equal((await streamed.usage).outputTokens, 8);
});

t.test('a required tool is called and run, and its result is sent back', async (t) => {
  const ran: Switched[] = [];
  const light = tool({
    description: 'Switches the light',
    inputSchema: parameters,
    execute: (input) => {
      ran.push(input);
      return { done: true };
    },
  });
  const { steps } = await generateText({
    model,
    prompt: 'Light!',
    tools: { light },
    toolChoice: 'required',
    // The second step has the tool’s result and must call again: the choice applies to both.
    stopWhen: stepCountIs(2),
    providerOptions: ONE_CALL,
    maxOutputTokens: 400,
    maxRetries: 0,
  });
  t.equal(steps.length, 2);
  t.equal(steps[0]?.finishReason, 'tool-calls');
  t.ok(ran.length >= 2);
  t.ok(ran.every(({ on }) => typeof on === 'boolean'));
});
