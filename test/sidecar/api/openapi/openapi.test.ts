import { createConfig, lintFromString } from '@redocly/openapi-core';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import t from 'tap';
import { ANSWER_SCHEMAS } from '../../../../sidecar/contracts/answer-schemas.js';
import { CHAT_SCHEMA } from '../../../../sidecar/contracts/chat-schema.js';
import { DECISIONS_SCHEMA } from '../../../../sidecar/contracts/decisions.js';
import { SYSTEMONE_SCHEMA } from '../../../../sidecar/contracts/systemone.js';
import { toChatRequest } from '../../../../sidecar/contracts/chat.js';
import { toDecisionRequest } from '../../../../sidecar/contracts/decisions.js';
import { COMMON_NOTES, DEFAULTS, NOTES, SHAPES } from '../../../../sidecar/api/openapi/notes.js';
import { openApiDocument } from '../../../../sidecar/api/openapi/openapi.js';
import { referencesOf } from '../../../../sidecar/api/public-routes.js';
import { componentSchemas, type Schema } from '../../../../sidecar/api/openapi/schemas.js';
import { toCompatibleRequest } from '../../../../sidecar/contracts/compatible.js';
import { toMessagesRequest } from '../../../../sidecar/contracts/messages.js';
import { toResponsesRequest } from '../../../../sidecar/contracts/responses.js';
import { operatorsOpenApi } from '../../../generate/operators-openapi.js';
import {
  FULL_CHAT,
  FULL_COMPATIBLE,
  FULL_MESSAGES,
  FULL_RESPONSES,
  objectsIn,
  shown,
  withAt,
  type At,
} from '../../../support/bodies.js';

const STRICT = referencesOf({ contract: 'strict', batch: true });
const COMPATIBLE = referencesOf({ contract: 'compatible', batch: true });

async function problemsOf(document: object): Promise<{ ruleId: string; severity: string; at: string | undefined }[]> {
  const config = await createConfig({ extends: ['recommended'] });
  const source = JSON.stringify(document);
  const problems = await lintFromString({ source, absoluteRef: 'openapi.json', config });
  return problems.map(({ ruleId, severity, location }) => ({ ruleId, severity, at: location[0]?.pointer }));
}

t.test('Redocly’s recommended rules find no error', async (t) => {
  const problems = await problemsOf(openApiDocument(STRICT));
  t.strictSame(
    problems.filter(({ severity }) => severity === 'error'),
    [],
  );
  t.strictSame(
    problems.map(({ at }) => at).sort(),
    [
      // A path of the other contract.
      '#/components/schemas/Account',
      // The rule does not see the field in the schema around the condition.
      '#/components/schemas/AssistantMessage/allOf/0/anyOf/1/required/0',
      // Paths of the other contract.
      '#/components/schemas/CompatibleChatRequest',
      '#/components/schemas/CountedChunk',
      '#/components/schemas/DescribedModelList',
      '#/components/schemas/MessageError',
      '#/components/schemas/MessageEvent',
      '#/components/schemas/MessagesRequest',
      '#/components/schemas/MessagesRequest/properties/tools/items/then/required/0',
      '#/components/schemas/PricedCompletion',
      '#/components/schemas/PricedUsageChunk',
      '#/components/schemas/ResponseEvent',
      '#/components/schemas/ResponsesRequest',
      // The condition refers to a field of the schemas beside it.
      '#/components/schemas/ResponsesRequest/properties/input/items/if/required/0',
      '#/components/schemas/TieredChunk',
      '#/components/schemas/TokenCount',
      '#/components/schemas/UsagePage',
      '#/components/securitySchemes/apiKey',
    ],
    'known false alarms of the linter',
  );
  const compatible = await problemsOf(openApiDocument(COMPATIBLE));
  t.strictSame(
    compatible.filter(({ severity }) => severity === 'error'),
    [],
  );
  t.strictSame(await problemsOf(operatorsOpenApi()), []);
  const broken = {
    ...openApiDocument(STRICT),
    paths: { '/x': { get: { responses: { 200: { $ref: '#/nowhere' } } } } },
  };
  t.ok(
    (await problemsOf(broken)).some(({ severity }) => severity === 'error'),
    'the linter does check',
  );
});

t.test('the Messages API has its own key and headers of answers', async (t) => {
  const { paths } = openApiDocument(COMPATIBLE) as {
    paths: Record<string, { post?: { security?: object[]; responses: Record<string, { headers: object }> } }>;
  };
  for (const path of ['/v1/messages', '/v1/messages/count_tokens', '/v1/chat/completions']) {
    const isOf = path.startsWith('/v1/messages');
    const { security, responses = {} } = paths[path]?.post ?? {};
    t.strictSame(security, isOf ? [{ key: [] }, { apiKey: [] }] : undefined, path);
    for (const status of ['200', '429']) {
      const names = Object.keys(responses[status]?.headers ?? {});
      t.equal(names.filter((name) => /^request-id$|^anthropic-ratelimit-/.test(name)).length, isOf ? 7 : 0, status);
      t.equal(names.filter((name) => name.startsWith('x-ratelimit-')).length, isOf ? 0 : 6, status);
    }
  }
});

t.test('the document is always equal, and JSON', async (t) => {
  const text = JSON.stringify(openApiDocument(STRICT));
  t.equal(JSON.stringify(openApiDocument(STRICT)), text);
  t.strictSame(JSON.parse(text), openApiDocument(STRICT));
  t.notMatch(text, /x-message|x-unlisted/);
  t.notMatch(text, '#/$defs/');
});

/** Checks against the published schema, as a reader of the document would. */
const published = new Ajv2020({ strict: false, validateFormats: false, logger: false }).addSchema(
  openApiDocument(STRICT),
  'openapi',
);

function publishedCheck(name: string): ValidateFunction {
  return published.compile({ $ref: `openapi#/components/schemas/${name}` });
}

type Change = readonly [At, Parameters<typeof withAt>[2]];

const COMMON: readonly Change[] = [
  [['outside'], 1],
  [['model'], undefined],
  [['model'], '-x'],
  [['temperature'], 2.1],
  [['metadata'], { a: 1 }],
  [['moderation'], null],
  [['moderation'], {}],
  [['prompt_cache_options'], { mode: 'explicit' }],
  [['metadata'], null],
  [['tools', 0, 'outside'], 1],
  [['tool_choice'], 'any'],
];
const CHAT_CHANGES: readonly Change[] = [
  [['tools', 0, 'type'], 'custom'],
  [['tool_choice', 'type'], 'allowed_tools'],
  [['messages'], []],
  [['messages', 0, 'role'], 'robot'],
  [['messages', 1, 'content'], null],
  [['messages', 2, 'outside'], 1],
  [['messages', 2, 'audio'], {}],
  [['max_tokens'], null],
  [['logprobs'], true],
  [['logit_bias'], { 5: 1 }],
  [['top_k'], -2],
  [['chat_template_kwargs'], { a: [] }],
  [['response_format', 'json_schema', 'schema', 'if'], {}],
  [['tools', 0, 'function', 'parameters', 'properties', 'a', 'contains'], {}],
  [['tools', 0, 'function', 'parameters', 'properties', 'a', '$ref'], '#'],
];
const RESPONSES_CHANGES: readonly Change[] = [
  [['input'], 'x'],
  [['input'], []],
  [['input', 0, 'role'], 'robot'],
  [['input', 3, 'outside'], 1],
  [['input', 5, 'call_id'], undefined],
  [['previous_response_id'], 'x'],
  [['truncation'], 'all'],
  [['tools', 0, 'type'], 'Custom'],
  [['tool_choice', 'type'], 'Custom'],
  [['input', 5, 'name'], ''],
  [['input', 5, 'type'], 'not_known'],
  [['text', 'format', 'schema', 'if'], {}],
  [['tools', 0, 'parameters', 'properties', 'a'], { contains: {} }],
];

const MESSAGES_CHANGES: readonly Change[] = [
  [['outside'], 1],
  [['model'], undefined],
  [['messages'], []],
  [['messages', 0, 'role'], 'robot'],
  [['messages', 0, 'outside'], 1],
  [['messages', 0, 'content', 0, 'type'], 'thinking'],
  [['messages', 0, 'content', 1, 'source', 'media_type'], 'text/plain'],
  [['messages', 2, 'content', 3, 'type'], 'robot'],
  [['messages', 2, 'content', 5, 'input'], '{}'],
  [['messages', 3, 'content', 0, 'content', 0, 'type'], 'tool_use'],
  [['tools', 0, 'input_schema'], undefined],
  [['tools', 0, 'input_schema', 'if'], {}],
  [['tools', 3, 'outside'], 1],
  [['tool_choice', 'type'], 'required'],
  [['thinking', 'budget_tokens'], 0],
  [['thread'], { type: 'create' }],
  [['mcp_servers'], [{}]],
];

t.test('the published schemas equal the checked ones', async (t) => {
  const check = publishedCheck('ChatCompletionRequest');
  t.ok(check(FULL_CHAT), 'a full body');
  const changed: [At, Parameters<typeof withAt>[2]][] = [
    ...objectsIn(FULL_CHAT).map((at): [At, 1] => [[...at, 'outside'], 1]),
    [['temperature'], 2.1],
    [['messages'], []],
    [['messages', 0, 'role'], 'robot'],
    [['messages', 0, 'content'], ''],
    [['model'], undefined],
    [['model'], '-x'],
    [['stop'], ['a', 'b', 'c', 'd', 'e']],
    [['n'], 17],
  ];
  for (const [at, value] of changed) {
    const body = withAt(FULL_CHAT, at, value);
    t.equal(check(body), toChatRequest(body).kind === 'ok', shown([...at, value ?? 'nothing']));
  }
  for (const [name, parse, full, changes] of [
    ['CompatibleChatRequest', toCompatibleRequest, FULL_COMPATIBLE, [...COMMON, ...CHAT_CHANGES]],
    ['ResponsesRequest', toResponsesRequest, FULL_RESPONSES, [...COMMON, ...RESPONSES_CHANGES]],
    ['MessagesRequest', toMessagesRequest, FULL_MESSAGES, MESSAGES_CHANGES],
  ] as const) {
    const check = publishedCheck(name);
    t.ok(check(full), `${name}: a full body`);
    for (const [at, value] of changes) {
      const body = withAt(full, at, value);
      t.equal(check(body), parse(body).kind === 'ok', `${name}: ${shown([...at, value ?? 'nothing'])}`);
    }
  }
  const decisions = publishedCheck('DecisionsRequest');
  const question = { id: 'q', type: 'yes_no', question: 'Is it?' };
  for (const body of [
    { model: 'm', input: 'x', questions: [question] },
    { model: 'm', input: ' ', questions: [question] },
    { model: 'm', input: 'x', questions: [{ ...question, type: 'choice' }] },
    { model: 'm', input: 'x', questions: [question], temperature: 0 },
    { model: 'm', input: 'x', questions: [question], prompt_format_version: 2 },
  ])
    t.equal(decisions(body), toDecisionRequest(body).kind === 'ok', shown(body));
  for (const name of Object.keys(componentSchemas())) t.type(publishedCheck(name), 'function', `${name} compiles`);
});

t.test('each schema of the contract is published', async (t) => {
  const components = componentSchemas();
  const bodies = new Set(
    [...STRICT, ...COMPATIBLE].flatMap(({ request, answer, frames }) => [request, answer, ...(frames ?? [])]),
  );
  bodies.delete(undefined);
  for (const outside of ['OpenApi', 'Content']) bodies.delete(outside);
  for (const name of bodies) t.ok(name !== undefined && components[name], String(name));
  t.equal(bodies.size, Object.keys(ANSWER_SCHEMAS).length + 9, 'and the nine requests');
  for (const [name, schema] of [
    ['ChatCompletionRequest', CHAT_SCHEMA],
    ['DecisionsRequest', DECISIONS_SCHEMA],
    ['SystemOneRequest', SYSTEMONE_SCHEMA],
  ] as const)
    t.strictSame(fieldsOf(components[name] ?? {}), fieldsOf(schema as Schema), name);
});

t.test('every field is described, and only existing ones', async (t) => {
  const components = componentSchemas();
  for (const [name, schema] of Object.entries(components)) {
    const [fields, notes] = [fieldsOf(schema), Object.keys(NOTES[name] ?? {})];
    t.strictSame(new Set([...notes, ...fields.filter((field) => field in COMMON_NOTES)]), new Set(fields), name);
  }
  for (const name of [...Object.keys(NOTES), ...Object.keys(SHAPES)]) t.ok(components[name], `${name} is a shape`);
});

t.test('the published defaults are those in force', async (t) => {
  const model = 'm';
  const required = { model, messages: [{ role: 'user', content: 'x' }] };
  const plain = toChatRequest(required);
  t.equal(plain.kind, 'ok');
  for (const [field, standard] of Object.entries(DEFAULTS['ChatCompletionRequest'] ?? {}))
    t.strictSame(toChatRequest({ ...required, [field]: standard }), plain, field);
  const questions = [{ id: 'q', type: 'yes_no', question: 'Is it?' }];
  const temperature = DEFAULTS['DecisionsRequest']?.['temperature'];
  t.strictSame(
    toDecisionRequest({ model, input: 'x', questions, temperature }),
    toDecisionRequest({ model, input: 'x', questions }),
  );
});

function fieldsOf(schema: Schema): string[] {
  return Object.keys((schema['properties'] as object | undefined) ?? {});
}
