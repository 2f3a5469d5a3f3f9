/** The `ai` package with its provider for OpenAI’s API, with base URL and key: text, tools, a tool loop, an object. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import {
  APICallError,
  generateText,
  jsonSchema,
  NoObjectGeneratedError,
  Output,
  stepCountIs,
  streamText,
  tool,
} from 'ai';
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

t.test('a streamed call arrives in pieces that join to valid arguments', async (t) => {
  const light = tool({ inputSchema: parameters, execute: () => ({ done: true }) });
  const stream = streamText({
    model,
    prompt: 'Light!',
    tools: { light },
    toolChoice: { type: 'tool', toolName: 'light' },
    providerOptions: ONE_CALL,
    maxOutputTokens: 400,
    maxRetries: 0,
  });
  const kinds = new Set<string>();
  for await (const part of stream.stream) kinds.add(part.type);
  for (const kind of ['tool-input-start', 'tool-input-delta', 'tool-input-end', 'tool-call', 'finish']) {
    t.ok(kinds.has(kind), kind);
  }
  t.notOk(kinds.has('error'));
  const calls = await stream.toolCalls;
  t.ok(calls.length > 0);
  t.ok(calls.every(({ toolName, input }) => toolName === 'light' && typeof (input as Switched).on === 'boolean'));
});

t.test('an object in JSON mode', async (t) => {
  const ask = (seed: number) =>
    generateText({
      model,
      prompt: 'An object',
      output: Output.json(),
      maxOutputTokens: 300,
      temperature: 2,
      seed,
      maxRetries: 0,
    }).then(
      ({ output }) => output,
      (error: unknown) => {
        // A random model may not finish within so many tokens, and only then there is no object.
        if (!NoObjectGeneratedError.isInstance(error)) throw error;
        t.equal(error.finishReason, 'length');
        return undefined;
      },
    );
  const objects = (await Promise.all(Array.from({ length: 16 }, (_, i) => ask(i)))).filter((one) => one !== undefined);
  t.ok(objects.length > 0);
  t.ok(objects.every((one) => typeof one === 'object' && one !== null && !Array.isArray(one)));
});

t.test('an error is the client’s own class, with the sidecar’s code and status', async (t) => {
  const wrong = createOpenAICompatible({ name: 'ra', baseURL: sidecar.base, apiKey: 'wrong' })(CHAT);
  const error: unknown = await generateText({ model: wrong, prompt: 'Hello', maxRetries: 0 }).catch(
    (reason: unknown) => reason,
  );
  if (!APICallError.isInstance(error)) throw new Error('another error');
  t.equal(error.statusCode, 401);
  t.match(error.responseBody, /invalid_api_key/);
});
