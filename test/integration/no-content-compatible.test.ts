/**
 * Zero retention under `contract: compatible`: canaries in the additional fields, messages, schemas and items, whole,
 * streamed, refused, cut off by a killed engine and sent again. No part of them or of the replies is in the spool or
 * another file, in the log, in metrics or in errors.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { canary, chatBody, MARK, type Fields } from '../support/canaries.js';
import { LeakSearch } from '../support/leak-search.js';
import { embeddedTestModel } from '../support/models.js';
import { RetentionWatch } from '../support/retention-watch.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const CHATS = '/chat/completions';
const RESPONSES = '/responses';
const MESSAGES = '/messages';
const COUNT = '/messages/count_tokens';

/** A schema as libraries write it, with a caller’s text in every keyword that accepts one. */
function schema(): Fields {
  const name = canary();
  return {
    type: 'object',
    title: canary(),
    $comment: canary(),
    $defs: { [name]: { type: 'string', description: canary(), examples: [canary()], default: canary() } },
    properties: { a: { $ref: `#/$defs/${name}` }, [canary()]: { enum: [canary(), null] } },
    required: ['a'],
  };
}

function compatibleChat(more: Fields = {}): Fields {
  return chatBody({
    messages: [
      { role: 'developer', content: [{ type: 'text', text: canary() }] },
      {
        role: 'assistant',
        content: canary(),
        refusal: canary(),
        reasoning: canary(),
        parsed: { [canary()]: canary() },
      },
      { role: 'user', content: `Tell me of the sea. ${canary()}` },
    ],
    metadata: { [canary()]: canary() },
    service_tier: canary(),
    prompt_cache_key: canary(),
    safety_identifier: canary(),
    prediction: { type: 'content', content: canary() },
    chat_template_kwargs: { [canary()]: canary() },
    ...more,
  });
}

function response(more: Fields = {}): Fields {
  return {
    model: CHAT,
    instructions: canary(),
    input: [
      { type: 'reasoning', summary: [{ type: 'summary_text', text: canary() }], encrypted_content: canary() },
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: canary() }] },
      { role: 'user', content: [{ type: 'input_text', text: `Tell me of the sea. ${canary()}` }] },
    ],
    max_output_tokens: 24,
    metadata: { [canary()]: canary() },
    include: [canary()],
    user: canary(),
    ...more,
  };
}

function message(more: Fields = {}): Fields {
  return {
    model: CHAT,
    max_tokens: 24,
    system: [
      { type: 'text', text: `x-anthropic-billing-header: ${canary()}` },
      { type: 'text', text: canary(), [canary()]: canary() },
    ],
    messages: [
      { role: 'user', content: canary() },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: canary(), signature: canary() },
          { type: 'server_tool_use', id: canary(), name: canary(), input: { [canary()]: canary() } },
          { type: 'tool_use', id: 'a', name: canary(), input: { [canary()]: canary() } },
        ],
      },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', is_error: true, content: canary() }] },
      { role: 'system', content: canary() },
      { role: 'user', content: `Tell me of the sea. ${canary()}` },
    ],
    metadata: { user_id: canary() },
    context_management: { [canary()]: canary() },
    stop_sequences: [canary()],
    ...more,
  };
}

const withSchema = (): Fields => ({
  response_format: { type: 'json_schema', json_schema: { name: canary(), description: canary(), schema: schema() } },
});
const withTool = (): Fields => {
  const name = canary();
  const described = { name, description: canary(), parameters: schema() };
  return { tools: [{ type: 'function', function: described }], tool_choice: { type: 'function', function: { name } } };
};

t.test('nothing that the compatible contract accepts is kept', async (t) => {
  const dataDir = t.testdir();
  const watch = new RetentionWatch();
  const file = await embeddedTestModel();
  const sidecar = await Sidecar.start(t, {
    config: {
      dataDir,
      contract: 'compatible',
      models: [{ id: CHAT, kind: 'chat', file, seats: 2, contextPerSeat: 8192 }],
      log: { level: 'trace' },
    },
  });

  await t.test('served, whole and streamed', async (t) => {
    const tool = { type: 'function', name: canary(), description: canary(), parameters: schema() };
    const format = { type: 'json_schema', name: canary(), schema: schema() };
    for (const [path, body] of [
      [CHATS, compatibleChat()],
      [CHATS, compatibleChat({ ...withSchema(), stream: true })],
      [CHATS, compatibleChat({ ...withTool(), n: 2 })],
      [RESPONSES, response()],
      [RESPONSES, response({ stream: true })],
      [RESPONSES, response({ text: { format }, stream: true })],
      [RESPONSES, response({ tools: [tool], tool_choice: { type: 'function', name: tool.name } })],
      [MESSAGES, message()],
      [MESSAGES, message({ output_config: { format: { type: 'json_schema', schema: schema() } }, stream: true })],
      [COUNT, message({ tools: [{ name: canary(), description: canary(), input_schema: schema() }] })],
    ] as const) {
      const served = await sidecar.post(path, body);
      t.equal(served.status, 200, path);
      await watch.replied(served);
    }
  });

  await t.test('refused, and sent again', async (t) => {
    const refuses = async (path: string, body: Fields, status: number, headers = {}): Promise<void> => {
      t.equal((await watch.refused(await sidecar.post(path, body, { headers }))).status, status);
    };
    await refuses(CHATS, compatibleChat({ [canary()]: canary() }), 400);
    await refuses(CHATS, compatibleChat({ logit_bias: { [canary()]: 1 } }), 400);
    await refuses(
      CHATS,
      compatibleChat({
        response_format: { type: 'json_schema', json_schema: { name: canary(), schema: { if: canary() } } },
      }),
      400,
    );
    await refuses(RESPONSES, response({ previous_response_id: canary() }), 400);
    await refuses(RESPONSES, response({ input: [{ type: canary(), [canary()]: canary() }] }), 400);
    await refuses(RESPONSES, response({ input: `${canary()} `.repeat(9000) }), 400);
    await refuses(MESSAGES, message({ thread: { type: canary() } }), 400);
    await refuses(MESSAGES, message({ messages: [{ role: 'user', content: `${canary()} `.repeat(9000) }] }), 400);
    await refuses(COUNT, message({ tools: [{ name: canary(), input_schema: { if: canary() } }] }), 400);
    await refuses(`/models/${canary()}`, {}, 405);
    const headers = { 'idempotency-key': canary() };
    const body = response();
    await watch.replied(await sidecar.post(RESPONSES, body, { headers }));
    await refuses(RESPONSES, body, 409, headers);
    await refuses(RESPONSES, response(), 422, headers);
  });

  await t.test('cut off by the engine’s end', async (t) => {
    const engine = sidecar.enginePid(CHAT);
    // A reply that its schema makes long.
    const all = { type: 'array', items: { type: 'integer' }, minItems: 200 };
    const schema = { type: 'object', properties: { all }, required: ['all'], additionalProperties: false };
    const text = { format: { type: 'json_schema', name: 'all', schema } };
    const stream = await sidecar.post(RESPONSES, response({ max_output_tokens: 7000, stream: true, text }));
    const events = await sidecar.post(
      MESSAGES,
      message({ max_tokens: 7000, stream: true, output_config: { format: { type: 'json_schema', schema } } }),
    );
    await sidecar.reaches('ra_sidecar_seats_busy', 2, { model: CHAT });
    process.kill(engine, 'SIGABRT');
    t.match(await watch.replied(stream), /"type":"error".*"code":"bad_gateway"/);
    const cut = await watch.replied(events);
    t.match(
      cut,
      /event: error\ndata: \{"type":"error","error":\{"type":"overloaded_error".*"error_code":"bad_gateway"/,
    );
    t.notMatch(cut, 'message_stop');
    await sidecar.logged('engine ready', 2, (line) => line['model'] === CHAT);
  });

  await watch.pages(sidecar);
  watch.processes(sidecar.pid);
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
  watch.output(sidecar);
  await watch.files(dataDir);
  const spool = await readdir(join(dataDir, 'usage'));
  t.ok(
    spool.some((name) => name.endsWith('.seg')),
    `the spool has files: ${spool.join()}`,
  );
  t.ok(watch.phrases.length > 5, `${watch.phrases.length} pieces of replies to look for`);
  t.same(watch.leaks(new LeakSearch([MARK], watch.phrases)), []);
});
