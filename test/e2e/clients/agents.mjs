// OpenAI's agents, by chat completions or by Responses.
import assert from 'node:assert/strict';
import {
  Agent,
  OpenAIChatCompletionsModel,
  OpenAIResponsesModel,
  Runner,
  handoff,
  setTracingDisabled,
  tool,
} from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import { faultSteps } from './faults.mjs';

setTracingDisabled(true);

export function agentSteps(api, given) {
  const { base, key, model: name } = given;
  const Model = api === 'chat' ? OpenAIChatCompletionsModel : OpenAIResponsesModel;
  const modelOf = (apiKey, maxRetries = 0) => new Model(new OpenAI({ apiKey, baseURL: base, maxRetries }), name);
  const modelSettings = { temperature: 0, maxTokens: 400 };
  const seen = [];
  const look = tool({
    name: 'look',
    description: 'Looks at a place',
    parameters: z.object({ at: z.enum(['x', 'y']) }),
    execute: async (given) => (seen.push(given), 'a cat'),
  });
  const agentOf = (more = {}) =>
    new Agent({ name: 'a', instructions: 'Be short.', model: modelOf(key), modelSettings, ...more });
  const forced = { ...modelSettings, toolChoice: 'required' };
  const runner = new Runner({ tracingDisabled: true });
  /** A reply that its schema makes long. */
  const long = {
    outputType: z.object({ all: z.array(z.number().int()).min(200) }),
    modelSettings: { ...modelSettings, maxTokens: 4000 },
  };
  return {
    async whole() {
      const result = await runner.run(agentOf(), 'Hello');
      assert.equal(typeof result.finalOutput, 'string');
      assert.ok(result.rawResponses[0].usage.totalTokens > 0);
    },
    async streamed() {
      const result = await runner.run(agentOf(), 'Hello', { stream: true });
      let text = '';
      for await (const piece of result.toTextStream()) text += piece;
      await result.completed;
      assert.ok(text && result.rawResponses[0].usage.outputTokens > 0);
    },
    async tools() {
      seen.length = 0;
      // The runner forces only the first call.
      const result = await runner.run(agentOf({ tools: [look], modelSettings: forced }), 'Hello', { maxTurns: 4 });
      assert.match(seen[0]?.at, /^[xy]$/);
      assert.equal(typeof result.finalOutput, 'string');
    },
    async handOff() {
      const second = agentOf({ name: 'b' });
      const first = agentOf({ handoffs: [handoff(second)], modelSettings: forced });
      const result = await runner.run(first, 'Hello', { maxTurns: 4 });
      assert.equal(result.lastAgent?.name, 'b');
    },
    async structured() {
      const outputType = z.object({ sky: z.enum(['clear', 'grey']), degrees: z.number().int().min(-50).max(60) });
      const result = await runner.run(agentOf({ outputType }), 'Hello');
      assert.ok(outputType.parse(result.finalOutput));
    },
    async again() {
      const agent = agentOf({ tools: [look], modelSettings: forced });
      const first = await runner.run(agent, 'Hello', { maxTurns: 4 });
      const second = await runner.run(agentOf(), [...first.history, { role: 'user', content: 'And?' }]);
      assert.equal(typeof second.finalOutput, 'string');
    },
    async abort() {
      const stop = new AbortController();
      let pieces = 0;
      try {
        const result = await runner.run(agentOf(long), 'Hello', { stream: true, signal: stop.signal });
        for await (const _ of result.toTextStream()) if ((pieces += 1) === 3) stop.abort();
        await result.completed;
      } catch (error) {
        assert.match(`${error.name} ${error.message}`, /abort/i);
      }
      assert.ok(pieces < 50);
    },
    async errors() {
      await assert.rejects(runner.run(agentOf({ model: modelOf('ra-dev-unknown') }), 'Hello'), { status: 401 });
      await assert.rejects(runner.run(agentOf({ modelSettings: { temperature: 9 } }), 'Hello'), { status: 400 });
    },
    ...faultSteps(given, {
      whole: (secret, text = 'Hello') => runner.run(agentOf({ model: modelOf(secret, 3) }), text),
      async long(secret, upon) {
        const stop = new AbortController();
        const agent = agentOf({ ...long, model: modelOf(secret) });
        const result = await runner.run(agent, 'Hello', { stream: true, signal: stop.signal });
        let pieces = 0;
        for await (const _ of result.toTextStream()) if ((pieces += 1) === 3) await upon(() => stop.abort());
        await result.completed;
      },
    }),
  };
}
