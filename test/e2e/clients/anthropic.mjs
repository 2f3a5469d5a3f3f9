// Anthropic's own client, of the version that the caller imports: the Messages API.
import assert from 'node:assert/strict';
import { faultSteps } from './faults.mjs';

const tool = {
  name: 'look',
  description: 'Looks at a place',
  input_schema: {
    type: 'object',
    properties: { at: { enum: ['x', 'y'] } },
    required: ['at'],
    additionalProperties: false,
  },
};

/** `key`: which of the client's two options has the key. */
export function anthropicSteps(Anthropic, given, option = 'apiKey') {
  const { base, key, model } = given;
  // The client adds the version to the base URL itself.
  const make = (secret, maxRetries = 0) =>
    new Anthropic({ [option]: secret, baseURL: base.replace(/\/v1$/, ''), maxRetries });
  const client = make(key);
  const hello = { model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 400 };
  /** A reply that its schema makes long. */
  const all = { type: 'array', items: { type: 'integer' }, minItems: 200 };
  const schema = { type: 'object', properties: { all }, required: ['all'], additionalProperties: false };
  const long = { output_config: { format: { type: 'json_schema', schema } }, max_tokens: 4000 };
  const textOf = ({ content }) => content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('');
  return {
    async list() {
      const ids = [];
      for await (const { id, type, display_name: name } of client.models.list({ limit: 5 })) {
        assert.ok(type === 'model' && name === id);
        ids.push(id);
      }
      assert.deepEqual(ids, [model]);
      assert.ok((await client.models.retrieve(model)).max_input_tokens > 0);
    },
    async whole() {
      const message = await client.messages.create(hello);
      assert.ok(textOf(message) && message.usage.output_tokens > 0);
      assert.ok(message._request_id);
    },
    async reads() {
      const { response } = await make(given.limited).messages.create(hello).withResponse();
      for (const of of ['requests', 'tokens']) {
        const field = (what) => response.headers.get(`anthropic-ratelimit-${of}-${what}`);
        assert.ok(Number(field('remaining')) > 0 && Number(field('remaining')) < Number(field('limit')), of);
        assert.ok(Date.parse(field('reset')) > Date.now() - 1000);
      }
    },
    async streamed() {
      const whole = await client.messages.create({ ...hello, top_k: 1 });
      const stream = client.messages.stream({ ...hello, top_k: 1 });
      let text = '';
      stream.on('text', (delta) => (text += delta));
      const message = await stream.finalMessage();
      assert.equal(text, textOf(whole));
      assert.deepEqual(message.content, whole.content);
      assert.equal(message.stop_reason, whole.stop_reason);
      const prompt = ({ input_tokens: fresh, cache_read_input_tokens: read }) => fresh + read;
      assert.equal(prompt(message.usage), prompt(whole.usage));
      assert.equal(message.usage.output_tokens, whole.usage.output_tokens);
    },
    async count() {
      const asked = { ...hello, system: 'Be short.', tools: [tool] };
      const { usage } = await client.messages.create(asked);
      const { max_tokens: _, ...counted } = asked;
      const { input_tokens: tokens } = await client.messages.countTokens(counted);
      assert.equal(tokens, usage.input_tokens + usage.cache_read_input_tokens);
    },
    async tools() {
      for (const choice of [{ type: 'any' }, { type: 'tool', name: 'look', disable_parallel_tool_use: true }]) {
        const asked = { ...hello, tools: [tool], tool_choice: choice };
        const called = await client.messages.stream(asked).finalMessage();
        assert.equal(called.stop_reason, 'tool_use');
        const results = called.content
          .filter(({ type }) => type === 'tool_use')
          .map(({ id, input }) => {
            assert.match(input.at, /^[xy]$/);
            return { type: 'tool_result', tool_use_id: id, content: [{ type: 'text', text: 'a cat' }] };
          });
        const messages = [
          ...hello.messages,
          { role: 'assistant', content: called.content },
          { role: 'user', content: results },
        ];
        const after = await client.messages.create({ ...hello, tools: [tool], messages });
        assert.ok(after.stop_reason);
      }
    },
    async runner() {
      const seen = [];
      const look = {
        ...tool,
        type: 'custom',
        parse: (given) => given,
        run: (given) => (seen.push(given), 'a cat'),
      };
      const runner = client.beta.messages.toolRunner({
        ...hello,
        tools: [look],
        tool_choice: { type: 'any' },
        max_iterations: 2,
      });
      await runner.runUntilDone();
      assert.ok(seen.length >= 1);
    },
    async structured() {
      const sky = { type: 'object', properties: { sky: { enum: ['clear', 'grey'] } }, required: ['sky'] };
      const message = await client.messages.create({
        ...hello,
        output_config: { format: { type: 'json_schema', schema: { ...sky, additionalProperties: false } } },
      });
      assert.match(JSON.parse(textOf(message)).sky, /^(clear|grey)$/);
    },
    async again() {
      const first = await client.messages.create({ ...hello, thinking: { type: 'adaptive' } });
      const messages = [
        ...hello.messages,
        { role: 'assistant', content: first.content },
        { role: 'user', content: 'And?' },
      ];
      const { stop_reason: reason } = await client.messages.create({ ...hello, messages });
      assert.ok(reason);
    },
    async abort() {
      const stream = await client.messages.create({ ...hello, ...long, stream: true });
      let events = 0;
      for await (const _ of stream) if ((events += 1) === 3) stream.controller.abort();
      assert.ok(events < 50);
    },
    async errors() {
      await assert.rejects(
        client.messages.create({ ...hello, temperature: 9 }),
        (error) => error instanceof Anthropic.BadRequestError && error.error.error.details.param === 'temperature',
      );
      await assert.rejects(client.messages.create({ ...hello, model: 'none' }), Anthropic.PermissionDeniedError);
      await assert.rejects(make('ra-dev-unknown').models.list(), Anthropic.AuthenticationError);
    },
    ...faultSteps(given, {
      whole: (secret, content = 'Hello') =>
        make(secret, 3).messages.create({ ...hello, messages: [{ role: 'user', content }] }),
      async long(secret, upon) {
        const stream = await make(secret).messages.create({ ...hello, ...long, stream: true });
        let events = 0;
        for await (const _ of stream) if ((events += 1) === 3) await upon(() => stream.controller.abort());
      },
    }),
  };
}
