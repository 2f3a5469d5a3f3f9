// LangChain: chat model, structured output, and both kinds of agent.
import assert from 'node:assert/strict';
import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { createReactAgent } from '@langchain/langgraph/prebuilt';
import { createAgent, createMiddleware } from 'langchain';
import { z } from 'zod';
import { faultSteps } from './faults.mjs';

/** `methods`: of structured output. `raw`: the client can give the answer as it came. */
export function langchainSteps(ChatOpenAI, given, methods = ['jsonSchema', 'functionCalling'], raw = true) {
  const { base, key, model: name } = given;
  const model = (more = {}) =>
    new ChatOpenAI({
      model: name,
      apiKey: key,
      temperature: 0,
      maxTokens: 400,
      maxRetries: 0,
      configuration: { baseURL: base },
      ...more,
    });
  const seen = [];
  const look = tool(async (given) => (seen.push(given), 'a cat'), {
    name: 'look',
    description: 'Looks at a place',
    schema: z.object({ at: z.enum(['x', 'y']), times: z.number().int().min(1).max(9).optional() }),
  });
  const hello = [new HumanMessage('Hello')];
  /**
   * Forces only the first call: the embedded model does not always make one, and a loop that forces each call never
   * ends.
   */
  const forcedOnce = () => {
    let calls = 0;
    return createMiddleware({
      name: 'force',
      wrapModelCall: (request, next) => next({ ...request, toolChoice: (calls += 1) === 1 ? 'required' : 'none' }),
    });
  };
  /** Settings of a reply that its schema makes long. */
  const schema = z.toJSONSchema(z.object({ all: z.array(z.number().int()).min(200) }));
  const modelKwargs = { response_format: { type: 'json_schema', json_schema: { name: 'all', schema } } };
  const long = { maxTokens: 4000, modelKwargs };
  return {
    async whole() {
      const reply = await model().invoke(hello);
      assert.ok(reply.content && reply.usage_metadata.total_tokens > 0);
    },
    ...(raw && {
      async reads() {
        const reply = await model({ __includeRawResponse: true }).invoke(hello);
        const { usage } = reply.additional_kwargs.__raw_response;
        assert.equal(typeof usage.cost, 'number');
        assert.equal(reply.usage_metadata.input_token_details?.cache_read, usage.prompt_tokens_details.cached_tokens);
      },
    }),
    async streamed() {
      let all;
      for await (const chunk of await model({ streamUsage: true }).stream(hello)) all = all ? all.concat(chunk) : chunk;
      assert.ok(all.content && all.usage_metadata.total_tokens > 0);
    },
    async tools() {
      const bound = model().bindTools([look], { tool_choice: 'required' });
      const called = await bound.invoke(hello);
      const result = await look.invoke(called.tool_calls[0]);
      assert.ok(result instanceof ToolMessage);
      const after = await model()
        .bindTools([look])
        .invoke([...hello, called, result]);
      assert.ok(after instanceof AIMessage);
    },
    async reactAgent() {
      seen.length = 0;
      let calls = 0;
      const chosen = () =>
        (calls += 1) === 1
          ? model().bindTools([look], { tool_choice: 'required' })
          : model().bindTools([look], { tool_choice: 'none' });
      const { messages } = await createReactAgent({ llm: chosen, tools: [look], prompt: 'Be short.' }).invoke({
        messages: hello,
      });
      assert.ok(seen.length >= 1);
      assert.match(messages.map((message) => message.getType()).join(), /^human,ai,(tool,)+ai$/);
    },
    async agent() {
      seen.length = 0;
      const agent = createAgent({
        model: model(),
        tools: [look],
        systemPrompt: 'Be short.',
        middleware: [forcedOnce()],
      });
      const { messages } = await agent.invoke({ messages: hello });
      assert.ok(seen.length >= 1);
      const again = await agent.invoke({ messages: [...messages, new HumanMessage('And?')] });
      assert.ok(again.messages.length > messages.length);
    },
    async structured() {
      const Sky = z.object({ sky: z.enum(['clear', 'grey']), degrees: z.number().int().min(-50).max(60) });
      for (const method of methods) {
        assert.ok(Sky.parse(await model({ maxTokens: 200 }).withStructuredOutput(Sky, { method }).invoke(hello)));
      }
    },
    async again() {
      const first = await model().invoke(hello);
      assert.ok((await model().invoke([...hello, first, new HumanMessage('And?')])) instanceof AIMessage);
    },
    async abort() {
      const stop = new AbortController();
      let chunks = 0;
      await assert.rejects(async () => {
        for await (const _ of await model(long).stream(hello, { signal: stop.signal }))
          if ((chunks += 1) === 3) stop.abort();
        stop.signal.throwIfAborted();
      });
      assert.ok(chunks < 50);
    },
    async errors() {
      await assert.rejects(model({ temperature: 9 }).invoke(hello), { status: 400 });
      await assert.rejects(model({ apiKey: 'ra-dev-unknown' }).invoke(hello), { status: 401 });
    },
    ...faultSteps(given, {
      whole: (apiKey, text = 'Hello') => model({ apiKey, maxRetries: 3 }).invoke([new HumanMessage(text)]),
      async long(apiKey, upon) {
        const stop = new AbortController();
        let chunks = 0;
        for await (const _ of await model({ ...long, apiKey }).stream(hello, { signal: stop.signal }))
          if ((chunks += 1) === 3) await upon(() => stop.abort());
      },
    }),
  };
}
