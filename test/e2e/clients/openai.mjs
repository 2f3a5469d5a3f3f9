// OpenAI's own client, of the version that the caller imports: chat completions.
import assert from 'node:assert/strict';
import { faultSteps } from './faults.mjs';

const tool = {
  type: 'function',
  function: {
    name: 'look',
    description: 'Looks at a place',
    parameters: {
      type: 'object',
      properties: { at: { enum: ['x', 'y'] } },
      required: ['at'],
      additionalProperties: false,
    },
  },
};

export function openaiSteps(OpenAI, { zodResponseFormat, z }, given) {
  const { base, key, model } = given;
  const client = new OpenAI({ apiKey: key, baseURL: base, maxRetries: 0 });
  const hello = { model, messages: [{ role: 'user', content: 'Hello' }], temperature: 0, max_completion_tokens: 400 };
  /** A reply that its schema makes long. */
  const all = { type: 'array', items: { type: 'integer' }, minItems: 200 };
  const schema = { type: 'object', properties: { all }, required: ['all'], additionalProperties: false };
  const response_format = { type: 'json_schema', json_schema: { name: 'all', schema } };
  const long = { response_format, max_completion_tokens: 4000 };
  const chat = client.chat.completions;
  return {
    async list() {
      const ids = [];
      for await (const { id } of client.models.list()) ids.push(id);
      assert.ok(ids.includes(model));
      assert.equal((await client.models.retrieve(model)).id, model);
    },
    async whole() {
      const { choices, usage } = await chat.create(hello);
      assert.ok(choices[0].message.content && usage.total_tokens > 0);
    },
    async reads() {
      const limited = new OpenAI({ apiKey: given.limited, baseURL: base, maxRetries: 0 });
      const { data, response } = await limited.chat.completions.create(hello).withResponse();
      for (const of of ['requests', 'tokens']) {
        const [left, all] = ['remaining', 'limit'].map((what) => response.headers.get(`x-ratelimit-${what}-${of}`));
        assert.ok(Number(left) > 0 && Number(left) < Number(all), `${left} of ${all} ${of}`);
      }
      assert.equal(typeof data.usage.cost, 'number');
      const { context_length: context, pricing } = await client.models.retrieve(model);
      assert.ok(context > 0 && pricing.completion >= 0);
    },
    async streamed() {
      let text = '';
      let usage;
      for await (const chunk of await chat.create({
        ...hello,
        stream: true,
        stream_options: { include_usage: true },
      })) {
        text += chunk.choices[0]?.delta.content ?? '';
        usage = chunk.usage ?? usage;
      }
      assert.ok(text && usage.completion_tokens > 0);
    },
    async tools() {
      const seen = [];
      const runner = chat.runTools({
        ...hello,
        tool_choice: 'auto',
        tools: [
          {
            ...tool,
            function: { ...tool.function, parse: JSON.parse, function: (given) => (seen.push(given), 'a cat') },
          },
        ],
      });
      assert.equal(typeof (await runner.finalContent()), 'string');
      const looped = chat.runTools(
        {
          ...hello,
          tool_choice: 'required',
          tools: [{ ...tool, function: { ...tool.function, parse: JSON.parse, function: () => 'a cat' } }],
        },
        { maxChatCompletions: 2 },
      );
      await looped.done();
      const roles = looped.messages.map(({ role }) => role).join();
      assert.match(roles, /^user,assistant,(tool,)+assistant/);
      const forced = chat.runTools({
        ...hello,
        tool_choice: { type: 'function', function: { name: 'look' } },
        tools: [
          {
            ...tool,
            function: { ...tool.function, parse: JSON.parse, function: (given) => (seen.push(given), 'a cat') },
          },
        ],
      });
      await forced.done();
      assert.match(seen.at(-1)?.at, /^[xy]$/);
      // A named function ends the runner’s loop after its call; the result is sent as the client itself would send it.
      const next = await chat.create({ ...hello, messages: forced.messages, tools: [tool] });
      assert.ok(next.choices[0].finish_reason);
    },
    async structured() {
      const Weather = z.object({ sky: z.enum(['clear', 'grey']), degrees: z.number().int().min(-50).max(60) });
      const parsed = await chat.parse({
        ...hello,
        max_completion_tokens: 400,
        response_format: zodResponseFormat(Weather, 'weather'),
      });
      assert.ok(Weather.parse(parsed.choices[0].message.parsed));
    },
    async again() {
      const first = await chat.stream(hello).finalMessage();
      const { choices } = await chat.create({
        ...hello,
        messages: [...hello.messages, first, { role: 'user', content: 'And?' }],
      });
      assert.equal(typeof choices[0].message.content, 'string');
      const called = await chat.stream({ ...hello, tools: [tool], tool_choice: 'required' }).finalMessage();
      const answer = { role: 'tool', tool_call_id: called.tool_calls[0].id, content: 'a cat' };
      const after = await chat.create({ ...hello, tools: [tool], messages: [...hello.messages, called, answer] });
      assert.ok(after.choices[0].finish_reason);
    },
    async abort() {
      const stop = new AbortController();
      const stream = await chat.create({ ...hello, ...long, stream: true }, { signal: stop.signal });
      let chunks = 0;
      for await (const _ of stream) if ((chunks += 1) === 3) stop.abort();
      assert.ok(chunks < 50);
    },
    async errors() {
      await assert.rejects(
        chat.create({ ...hello, temperature: 9 }),
        (error) => error instanceof OpenAI.BadRequestError && error.param === 'temperature',
      );
      await assert.rejects(chat.create({ ...hello, model: 'none' }), OpenAI.PermissionDeniedError);
      const stranger = client.withOptions({ apiKey: 'ra-dev-unknown' });
      await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
    },
    ...faultSteps(given, {
      whole: (secret, content = 'Hello') =>
        client
          .withOptions({ apiKey: secret, maxRetries: 3 })
          .chat.completions.create({ ...hello, messages: [{ role: 'user', content }] }),
      async long(secret, upon) {
        const stream = await client
          .withOptions({ apiKey: secret })
          .chat.completions.create({ ...hello, ...long, stream: true });
        let chunks = 0;
        for await (const _ of stream) if ((chunks += 1) === 3) await upon(() => stream.controller.abort());
      },
    }),
  };
}
