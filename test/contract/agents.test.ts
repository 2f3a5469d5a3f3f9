/**
 * Requests of coding agents and agent libraries, recorded from them with placeholders for their texts: each is accepted under
 * `contract: compatible`, and each of its fields is used, has no effect or is refused, as this table says. One is: `thread`, after whose
 * refusal its client sends the whole conversation.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { parseChat, type Parsed } from '../../sidecar/contracts/parse.js';
import type { ChatForm, ChatRequest } from '../../sidecar/contracts/requests.js';
import { bytesOf } from '../support/bodies.js';
import { InProcess } from '../support/in-process.js';
import { sourceRoot } from '../support/source-root.js';
import { STUB_JOB, STUB_TOP_K } from '../support/stub-script.js';
import { stubProjector, VISION_STUB } from '../support/vision-script.js';

type Fields = Readonly<Record<string, unknown>>;

interface Recorded {
  readonly client: string;
  readonly step?: string;
  /** With its query. */
  readonly path: string;
  readonly body: Fields;
}

/** With the tools, which a file has once each. */
function recorded(file: string): readonly Recorded[] {
  const { tools, requests } = JSON.parse(readFileSync(join(sourceRoot, 'test/fixtures', file), 'utf8')) as {
    readonly tools: Readonly<Record<string, object>>;
    readonly requests: readonly (Recorded & { readonly body: { readonly tools?: readonly string[] } })[];
  };
  return requests.map(({ body, ...request }) => ({
    ...request,
    body: { ...body, ...(body.tools && { tools: body.tools.map((name) => tools[name]) }) },
  }));
}

const RECORDED = [...recorded('agent-requests.json'), ...recorded('messages/requests.json')];

const FORMS: Readonly<Record<string, ChatForm>> = {
  '/v1/chat/completions': 'compatible',
  '/v1/responses': 'responses',
  '/v1/messages': 'messages',
  '/v1/messages/count_tokens': 'messages',
};

/** Names of fields, in their order. */
type Row = readonly [used: string, noEffect: string, refused?: string];

const routeOf = ({ path }: Recorded): string => path.replace(/\?.*/, '');

/**
 * By client and route: fields without which one of its requests would mean something else, and those that are ignored or have the value that
 * their absence means.
 */
const TABLE: Readonly<Record<string, Row>> = {
  '@openai/codex 0.171.0 /v1/responses': [
    'input model parallel_tool_calls prompt_cache_key reasoning stream text tools',
    'client_metadata include store tool_choice',
  ],
  'opencode-ai 1.18.33 /v1/chat/completions': [
    'max_tokens messages model reasoning_effort stream stream_options tools',
    'tool_choice',
  ],
  'opencode-ai 1.18.33 /v1/responses': [
    'input max_output_tokens model prompt_cache_key reasoning stream tools',
    'include store text tool_choice',
  ],
  '@qwen-code/qwen-code 0.24.4 /v1/chat/completions': ['max_tokens messages model stream stream_options tools', ''],
  '@earendil-works/pi-coding-agent 1.6.0 /v1/chat/completions': [
    'max_completion_tokens messages model reasoning_effort stream stream_options tools',
    'store',
  ],
  '@earendil-works/pi-coding-agent 1.6.0 /v1/responses': [
    'input max_output_tokens model prompt_cache_key reasoning stream tools',
    'include store',
  ],
  'cline 3.0.65 /v1/chat/completions': ['messages model stream stream_options tools', 'tool_choice'],
  '@continuedev/cli 1.5.47 /v1/chat/completions': ['messages model stream stream_options tools', ''],
  '@openai/agents 0.20.0 /v1/responses': ['input instructions model tools', 'include store stream'],
  '@openai/agents 0.20.0 /v1/chat/completions': ['messages model stream stream_options tools', 'store'],
  '@anthropic-ai/claude-code 2.1.332 /v1/messages': [
    'max_tokens messages metadata model output_config stream system thinking tools',
    'context_management tool_choice',
  ],
  '@anthropic-ai/sdk 0.137.0 /v1/messages': [
    'max_tokens messages model temperature tools top_k top_p',
    'context_management mcp_servers stream',
  ],
  '@anthropic-ai/sdk 0.137.0 /v1/messages/count_tokens': ['messages model system tools', ''],
  '@anthropic-ai/sdk 1.14.0 /v1/messages': [
    'max_tokens messages metadata model output_config service_tier stop_sequences stream system thinking tool_choice tools',
    'cache_control context_management mcp_servers',
    'thread',
  ],
  '@anthropic-ai/sdk 1.14.0 /v1/messages/count_tokens': ['messages model system tools', ''],
  'ai 7.0.173, @ai-sdk/anthropic 4.0.105 /v1/messages': [
    'max_tokens messages model output_config stop_sequences system temperature thinking tool_choice tools top_k top_p',
    'cache_control',
  ],
  '@langchain/anthropic 1.5.11 /v1/messages': [
    'max_tokens messages model output_config stop_sequences system temperature thinking tool_choice tools top_k top_p',
    'stream',
  ],
  'opencode-ai 1.18.33 /v1/messages': ['max_tokens messages model stream system tools', 'tool_choice'],
  '@earendil-works/pi-coding-agent 1.6.0 /v1/messages': ['max_tokens messages model stream system thinking tools', ''],
  '@continuedev/cli 1.5.47 /v1/messages': ['max_tokens messages model stream system tools', ''],
};

function parsed(recorded: Recorded, body: Fields): Parsed<ChatRequest> {
  return parseChat(bytesOf(JSON.stringify(body)), FORMS[routeOf(recorded)]);
}

/** What is asked for, or why it is refused. */
function request(recorded: Recorded, body: Fields): string {
  const made = parsed(recorded, body);
  return made.kind === 'invalid' ? made.error.message : JSON.stringify(made.request);
}

const without = (body: Fields, field: string): Fields =>
  Object.fromEntries(Object.entries(body).filter(([name]) => name !== field));

/** What is left of a body without the fields for which it is refused. */
function served(recorded: Recorded): Fields {
  const { body } = recorded;
  if (parsed(recorded, body).kind === 'ok') return body;
  const refused = Object.keys(body).find((field) => parsed(recorded, without(body, field)).kind === 'ok');
  return refused === undefined ? body : without(body, refused);
}

/** Whether a field of a body changes what is asked for, `whole`. A field that the contract requires does. */
function isUsed(recorded: Recorded, body: Fields, field: string, whole: string): boolean {
  if (['model', 'messages', 'input'].includes(field)) return true;
  return request(recorded, without(body, field)) !== whole;
}

t.test('every field of every recorded request is used, has no effect or is refused', async (t) => {
  const found: Record<string, Record<'used' | 'noEffect' | 'refused', string[]>> = {};
  for (const recorded of RECORDED) {
    const body = served(recorded);
    const row = (found[`${recorded.client} ${routeOf(recorded)}`] ??= { used: [], noEffect: [], refused: [] });
    const whole = request(recorded, body);
    for (const field of Object.keys(recorded.body)) {
      if (row.used.includes(field)) continue;
      const effect = !(field in body) ? 'refused' : isUsed(recorded, body, field, whole) ? 'used' : 'noEffect';
      if (effect === 'used') row.noEffect = row.noEffect.filter((name) => name !== field);
      const list = row[effect];
      if (!list.includes(field)) list.push(field);
    }
  }
  const rows = Object.entries(found).map(([name, { used, noEffect, refused }]): [string, readonly string[]] => {
    const lists = [used, noEffect, refused].map((list) => list.sort().join(' '));
    return [name, refused.length > 0 ? lists : lists.slice(0, 2)];
  });
  t.strictSame(Object.fromEntries(rows), TABLE);
});

/** Whether a user sends an image: of a tool’s result it would be a line of text. */
function hasImage({ body: { input, messages } }: Recorded): boolean {
  const all = (input ?? messages) as string | readonly { readonly role?: string; readonly content?: unknown }[];
  if (typeof all === 'string') return false;
  return all.some(
    ({ role, content }) =>
      role === 'user' &&
      Array.isArray(content) &&
      (content as readonly { readonly type: string }[]).some(({ type }) => ['image', 'input_image'].includes(type)),
  );
}

t.test('each is answered over HTTP, whole and as it asks', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [
      { id: 'reads', kind: 'chat', contextPerSeat: 32_768 },
      { id: 'sees', kind: 'chat', contextPerSeat: 32_768, vision: { projector: stubProjector() } },
    ],
    visionEntry: VISION_STUB,
    config: { contract: 'compatible' },
  });
  await sidecar.seen('vision ready');
  let images = 0;
  for (const recorded of RECORDED) {
    const { client, path, step = '' } = recorded;
    const isImage = hasImage(recorded);
    images += Number(isImage);
    // Of the Messages API: what the stub does, with a short reply.
    const short = FORMS[routeOf(recorded)] === 'messages' && { top_k: STUB_TOP_K + STUB_JOB.clocked };
    const body: Fields = { ...recorded.body, model: isImage ? 'sees' : 'reads', ...short };
    const name = `${client} ${path} ${step}`;
    if ('thread' in body) {
      const refused = await sidecar.post(path, body);
      t.match(JSON.parse(refused.body), { error: { details: { error_code: 'thread_unsupported_request' } } }, name);
    }
    const answer = await sidecar.post(path, { ...body, ...('thread' in body && { thread: null }) });
    t.equal(answer.status, 200, `${name} ${answer.body.slice(0, 300)}`);
    if (routeOf(recorded) === '/v1/messages') {
      const asked = { ...body, stream: false, thread: null };
      const { usage } = JSON.parse((await sidecar.post(path, asked)).body) as { usage: Record<string, number> };
      const tokens = (usage['input_tokens'] ?? 0) + (usage['cache_read_input_tokens'] ?? 0);
      const counted = await sidecar.post('/v1/messages/count_tokens', asked);
      t.strictSame(JSON.parse(counted.body), { input_tokens: tokens }, `${name}: a count is the length of its prompt`);
    }
    if (short) continue;
    const left = answer.field('x-ra-tools-left-out');
    const foreign = [...JSON.stringify(body).matchAll(/"type":"(web_search|custom|tool_search)"/g)];
    const types = [...new Set(foreign.map(([, type = '']) => type))];
    t.strictSame(left?.split(', ').sort() ?? [], types.sort(), name);
  }
  t.equal(images, 3, 'so many have an image of the user’s');
});
