/**
 * Requests of coding agents and agent libraries, recorded from them with placeholders for their texts: each is accepted under
 * `contract: compatible`, and each of its fields is used or has no effect, as this table says. None is refused.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { parseChat } from '../../sidecar/contracts/parse.js';
import type { ChatRequest } from '../../sidecar/contracts/requests.js';
import { bytesOf } from '../support/bodies.js';
import { InProcess } from '../support/in-process.js';
import { sourceRoot } from '../support/source-root.js';

type Body = Readonly<Record<string, unknown>> & { readonly model: string };

interface Recorded {
  readonly client: string;
  readonly path: '/v1/chat/completions' | '/v1/responses';
  readonly body: Body;
}

const { tools, requests } = JSON.parse(readFileSync(join(sourceRoot, 'test/fixtures/agent-requests.json'), 'utf8')) as {
  readonly tools: Readonly<Record<string, object>>;
  readonly requests: readonly (Recorded & { readonly body: { readonly tools?: readonly string[] } })[];
};

/** With the tools, which the file has once each. */
const RECORDED: readonly Recorded[] = requests.map(({ client, path, body }) => ({
  client,
  path,
  body: { ...body, ...(body.tools && { tools: body.tools.map((name) => tools[name]) }) },
}));

/**
 * By client and route: fields without which one of its requests would mean something else, and those that are ignored or have the value that
 * their absence means.
 */
const TABLE: Readonly<Record<string, { readonly used: readonly string[]; readonly noEffect: readonly string[] }>> = {
  '@openai/codex 0.171.0 /v1/responses': {
    used: ['input', 'model', 'parallel_tool_calls', 'prompt_cache_key', 'reasoning', 'stream', 'text', 'tools'],
    noEffect: ['client_metadata', 'include', 'store', 'tool_choice'],
  },
  'opencode-ai 1.18.33 /v1/chat/completions': {
    used: ['max_tokens', 'messages', 'model', 'reasoning_effort', 'stream', 'stream_options', 'tools'],
    noEffect: ['tool_choice'],
  },
  'opencode-ai 1.18.33 /v1/responses': {
    used: ['input', 'max_output_tokens', 'model', 'prompt_cache_key', 'reasoning', 'stream', 'tools'],
    noEffect: ['include', 'store', 'text', 'tool_choice'],
  },
  '@qwen-code/qwen-code 0.24.4 /v1/chat/completions': {
    used: ['max_tokens', 'messages', 'model', 'stream', 'stream_options', 'tools'],
    noEffect: [],
  },
  '@earendil-works/pi-coding-agent 1.6.0 /v1/chat/completions': {
    used: ['max_completion_tokens', 'messages', 'model', 'reasoning_effort', 'stream', 'stream_options', 'tools'],
    noEffect: ['store'],
  },
  '@earendil-works/pi-coding-agent 1.6.0 /v1/responses': {
    used: ['input', 'max_output_tokens', 'model', 'prompt_cache_key', 'reasoning', 'stream', 'tools'],
    noEffect: ['include', 'store'],
  },
  'cline 3.0.65 /v1/chat/completions': {
    used: ['messages', 'model', 'stream', 'stream_options', 'tools'],
    noEffect: ['tool_choice'],
  },
  '@continuedev/cli 1.5.47 /v1/chat/completions': {
    used: ['messages', 'model', 'stream', 'stream_options', 'tools'],
    noEffect: [],
  },
  '@openai/agents 0.20.0 /v1/responses': {
    used: ['input', 'instructions', 'model', 'tools'],
    noEffect: ['include', 'store', 'stream'],
  },
  '@openai/agents 0.20.0 /v1/chat/completions': {
    used: ['messages', 'model', 'stream', 'stream_options', 'tools'],
    noEffect: ['store'],
  },
};

function request(path: Recorded['path'], body: object): ChatRequest {
  const parsed = parseChat(bytesOf(JSON.stringify(body)), path === '/v1/responses' ? 'responses' : 'compatible');
  if (parsed.kind === 'invalid') throw new Error(`${parsed.error.param ?? ''}: ${parsed.error.message}`);
  return parsed.request;
}

/** Whether a field of a body changes what is asked for. A field that the contract requires does. */
function isUsed({ path, body }: Recorded, field: string): boolean {
  if (['model', 'messages', 'input'].includes(field)) return true;
  const without = Object.fromEntries(Object.entries(body).filter(([name]) => name !== field));
  return JSON.stringify(request(path, without)) !== JSON.stringify(request(path, body));
}

t.test('every field of every recorded request is used or has no effect', async (t) => {
  const found: Record<string, { used: string[]; noEffect: string[] }> = {};
  for (const recorded of RECORDED) {
    const row = (found[`${recorded.client} ${recorded.path}`] ??= { used: [], noEffect: [] });
    for (const field of Object.keys(recorded.body)) {
      const used = isUsed(recorded, field);
      if (used) row.noEffect = row.noEffect.filter((name) => name !== field);
      const list = used ? row.used : row.noEffect;
      if (!row.used.includes(field) && !list.includes(field)) list.push(field);
    }
  }
  for (const row of Object.values(found)) {
    row.used.sort();
    row.noEffect.sort();
  }
  t.strictSame(found, TABLE);
});

t.test('each is answered over HTTP, whole and as it asks', async (t) => {
  const ids = [...new Set(RECORDED.map(({ body }) => body.model))];
  const sidecar = await InProcess.start(t, {
    models: ids.map((id) => ({ id, kind: 'chat', contextPerSeat: 32_768 })),
    config: { contract: 'compatible' },
  });
  const image = JSON.stringify(RECORDED.find(({ body }) => userImage(body))?.body);
  for (const { client, path, body } of RECORDED) {
    const answer = await sidecar.post(path, body);
    const name = `${client} ${path}`;
    if (JSON.stringify(body) === image) {
      t.equal(answer.status, 400, `${name}: a user’s image, and a model without vision`);
      t.match(answer.body, /input\[3\]\.content\[1\] is an image, and this model has no vision/);
      continue;
    }
    t.equal(answer.status, 200, `${name} ${answer.body.slice(0, 300)}`);
    const left = answer.field('x-ra-tools-left-out');
    const foreign = JSON.stringify(body).match(/"type":"(?:web_search|custom|tool_search)"/g) ?? [];
    t.equal(left !== undefined, foreign.length > 0, `${name}: ${left}`);
  }
});

/** Whether a user sends an image: of a tool's result it would be a line of text. */
function userImage({ input }: Body): boolean {
  const items = Array.isArray(input) ? (input as readonly { readonly role?: string }[]) : [];
  return items.some((item) => item.role === 'user' && JSON.stringify(item).includes('input_image'));
}
