/** Fields of POST /v1/messages, written from docs/compatible.md#messages-api. */
import type { Json } from '../../support/bodies.js';
import { entries, fieldCases, type CompatibleCase, type FieldRow, type Row, rowsOf } from './compatible-tables.js';
import { CANARY } from './rule.js';

const SCHEMA = { type: 'object', properties: { [CANARY]: { type: 'string' } } };
const NO_TOOL_RUNS = 'no tool runs here';

/** Fields of the body, apart from `model` and `messages`. */
export const MESSAGES_FIELDS: readonly FieldRow[] = rowsOf([
  [
    'system',
    'used',
    [CANARY, [{ type: 'text', text: CANARY, cache_control: { type: CANARY } }], '', [], null],
    [
      [7, 'must be a string or an array or null'],
      [[{ type: 'image' }], 'must be one of text', 'system[0].type'],
    ],
  ],
  ['max_tokens', 'used', [5, null], [[0, 'must be at least 1']]],
  [
    'stop_sequences',
    'used',
    [[CANARY], [], null],
    [
      [[''], 'must not be empty', 'stop_sequences[0]'],
      [Array<Json>(17).fill('x'), 'must have at most 16 items'],
    ],
  ],
  ['stream', 'used', [true, false, null], [[CANARY, 'must be a boolean or null']]],
  ['temperature', 'used', [0.5, 0, null], [[2.1, 'must be at most 2']]],
  ['top_p', 'used', [0.5, null], [[1.1, 'must be at most 1']]],
  ['top_k', 'used', [40, 0, -1, null], [[-2, 'must be at least -1']]],
  [
    'tools',
    'used',
    [
      [{ name: 'look', description: CANARY, input_schema: SCHEMA, cache_control: {}, eager_input_streaming: true }],
      [{ name: 'look', type: 'custom', input_schema: SCHEMA, strict: true, allowed_callers: [CANARY] }],
      [{ name: 'bash', type: 'bash_20250124' }],
      // Sets of tools.
      [
        { type: 'computer_toolset_20260801', configs: { [CANARY]: {} } },
        { type: 'mcp_toolset', mcp_server_name: CANARY },
      ],
      [],
      null,
    ],
    [
      [[{ name: 'look' }], 'is required', 'tools[0].input_schema'],
      [[{ input_schema: SCHEMA }], 'is required', 'tools[0].name'],
      [
        [
          { name: 'look', input_schema: SCHEMA },
          { name: 'look', type: 'bash_20250124' },
        ],
        'must not be the name of an earlier tool: give each tool its own name',
        'tools[1].name',
      ],
    ],
  ],
  [
    'tool_choice',
    'used',
    [{ type: 'none' }, { type: 'auto', disable_parallel_tool_use: true }, null],
    [
      [{ type: 'any' }, 'must not be any without a tool that can be called'],
      [{ type: 'tool', name: CANARY }, 'must be the name of one of the tools', 'tool_choice.name'],
      [{ type: CANARY }, 'must be one of auto, any, tool, none', 'tool_choice.type'],
    ],
  ],
  [
    'thinking',
    'used',
    [
      { type: 'enabled', budget_tokens: 1024, display: 'omitted' },
      { type: 'adaptive' },
      { type: 'between_tools' },
      { type: 'disabled' },
      null,
    ],
    [[{ type: CANARY }, 'must be one of enabled, adaptive, between_tools, disabled', 'thinking.type']],
  ],
  [
    'output_config',
    'used',
    [{ effort: 'max' }, { format: { type: 'json_schema', schema: SCHEMA } }, { effort: null }, null],
    [[{ effort: CANARY }, 'must be one of low, medium, high, xhigh, max', 'output_config.effort']],
  ],
  [
    'output_format',
    'used',
    [{ type: 'json_schema', schema: SCHEMA }, null],
    [[{ type: 'json_schema' }, 'is required', 'output_format.schema']],
  ],
  [
    'metadata',
    'used',
    [{ user_id: CANARY }, { user_id: 'x'.repeat(300) }, {}, null],
    [[{ user_id: 'x'.repeat(1025) }, 'has an entry that must have at most 1024 characters', 'metadata']],
  ],
  ...['cache_control', 'context_management', 'diagnostics'].map((field): Row => [
    field,
    'ignored',
    [{ [CANARY]: [CANARY] }, null],
    [[entries(65), 'must have at most 64 entries']],
  ]),
  ...['service_tier', 'speed', 'inference_geo', 'user_profile_id', 'workspace_id'].map((field): Row => [
    field,
    field === 'service_tier' ? 'used' : 'ignored',
    [CANARY, null],
    [[7, 'must be a string or null']],
  ]),
  ['fallbacks', 'ignored', ['default', [{ model: CANARY }], null], [[7, 'must be an array or a string or null']]],
  [
    'fallback_credit_token',
    'ignored',
    [CANARY, { [CANARY]: CANARY }, null],
    [[7, 'must be an object or a string or null']],
  ],
  ['betas', 'ignored', [[CANARY], null], [[CANARY, 'must be an array or null']]],
  [
    'thread',
    'refused',
    [null],
    [
      [{ type: 'create' }, 'must be null: no message is stored here, so send the whole conversation'],
      [
        { type: 'continue', previous_message_id: CANARY },
        'must be null: no message is stored here, so send the whole conversation',
      ],
    ],
  ],
  ['container', 'refused', [null], [[CANARY, `must be null: ${NO_TOOL_RUNS}`]]],
  [
    'mcp_servers',
    'refused',
    [[], null],
    [
      [
        [{ type: 'url', url: CANARY }],
        `must be empty: ${NO_TOOL_RUNS}, so offer the tools of MCP servers as tools of your own`,
      ],
    ],
  ],
]);

const SERVER_TOOL = { name: 'web_search', type: 'web_search_20250305' };
const around = (more: Readonly<Record<string, Json>>): Readonly<Record<string, Json>> => ({
  model: 'not-hosted',
  messages: [{ role: 'user', content: CANARY }],
  ...more,
});
const said = (...messages: Json[]): Json => [{ role: 'user', content: CANARY }, ...messages];

const called = (more: Readonly<Record<string, Json>>): Json =>
  said({ role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'f', ...more }] });
const many = (count: number): Json => Array<Json>(count).fill({ role: 'user', content: CANARY });
const result = (more: Readonly<Record<string, Json>>): Json => [
  { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', ...more }] },
];

/** Combinations, and what messages may be. */
const OTHERS: readonly (readonly [
  name: string,
  more: Readonly<Record<string, Json>>,
  param?: string,
  predicate?: string,
])[] = [
  ['a tool that does not run here', { tools: [SERVER_TOOL], tool_choice: { type: 'auto' } }],
  [
    'it alone, forced',
    { tools: [SERVER_TOOL], tool_choice: { type: 'any' } },
    'tool_choice',
    'must not be any without a tool that can be called',
  ],
  [
    'it by its name',
    { tools: [SERVER_TOOL], tool_choice: { type: 'tool', name: 'web_search' } },
    'tool_choice.name',
    'must not be a tool of a type that is not served here: offer one of your own',
  ],
  ['a system message', { messages: said({ role: 'system', content: [{ type: 'text', text: CANARY }] }) }],
  [
    'a call of a tool of Anthropic’s',
    {
      messages: said({
        role: 'assistant',
        content: [
          { type: 'server_tool_use', id: CANARY, name: CANARY, input: {} },
          { type: 'web_search_tool_result', tool_use_id: CANARY, content: [{ encrypted_content: CANARY }] },
          { type: 'redacted_thinking', data: CANARY },
        ],
      }),
    },
  ],
  [
    'blocks of the newest API',
    {
      messages: said(
        {
          role: 'assistant',
          content: [
            { type: 'fallback', from: { model: CANARY }, to: { model: CANARY } },
            { type: 'mcp_tool_listing', mcp_server_name: CANARY, tools: [] },
          ],
        },
        {
          role: 'user',
          content: [{ type: 'tool_result', tool_use_id: 'a', content: [{ type: 'browser_state', tabs: [] }] }],
        },
      ),
    },
  ],
  ...[
    { type: 'file', file_id: CANARY },
    { type: 'url', url: `http://${CANARY}` },
    { type: 'base64', media_type: 'text/plain', data: '' },
  ].map(
    (source) =>
      [`an image ${source.type} in a result`, { messages: result({ content: [{ type: 'image', source }] }) }] as const,
  ),
  [
    'a document with an image',
    {
      messages: [
        {
          role: 'user',
          content: [
            {
              type: 'document',
              source: { type: 'content', content: [{ type: 'image', source: { type: 'file', file_id: CANARY } }] },
            },
          ],
        },
      ],
    },
  ],
  [
    'a block of no known type',
    { messages: said({ role: 'assistant', content: [{ type: CANARY }] }) },
    'messages[1].content[0].type',
    'must be one of text, thinking, redacted_thinking, tool_use',
  ],
  // What ends no session, as in chat under this contract.
  ...[`{"${CANARY}`, null, [CANARY], 7, undefined].map(
    (input) =>
      [
        `a call’s input ${JSON.stringify(input)}`,
        { messages: called({ ...(input !== undefined && { input }) }) },
      ] as const,
  ),
  ['any name of an earlier call', { messages: called({ name: `${CANARY}.é/`.padEnd(256, 'x') }) }],
  [
    'it with a character more',
    { messages: called({ name: CANARY.padEnd(257, 'x') }) },
    'messages[1].content[0].name',
    'must have at most 256 characters',
  ],
  ['ids of 8,192 characters', { messages: called({ id: CANARY.padEnd(8192, 'x') }) }],
  [
    'an id with a character more',
    { messages: called({ id: CANARY.padEnd(8193, 'x') }) },
    'messages[1].content[0].id',
    'must have at most 8192 characters',
  ],
  [
    'a result’s id with a character more',
    { messages: result({ tool_use_id: CANARY.padEnd(8193, 'x') }) },
    'messages[0].content[0].tool_use_id',
    'must have at most 8192 characters',
  ],
  [
    'a reference to a tool with a dot in its name',
    { messages: result({ content: [{ type: 'tool_reference', tool_name: `a.${CANARY}` }] }) },
  ],
  ...[`.${'x'.repeat(127)}`, 'x'.repeat(129)].map(
    (name) =>
      [
        `a tool’s name of ${name.length} characters`,
        { tools: [{ name, input_schema: SCHEMA }], tool_choice: { type: 'tool', name } },
        ...(name.length > 128 ? (['tools[0].name', 'must have at most 128 characters'] as const) : ([] as const)),
      ] as const,
  ),
  ['16,384 messages', { messages: many(16_384) }],
  ['a message more', { messages: many(16_385) }, 'messages', 'must have at most 16384 items'],
  [
    '513 tools',
    { tools: Array<Json>(513).fill({ name: 'a', input_schema: {} }) },
    'tools',
    'must have at most 512 items',
  ],
  [
    'an image of a file',
    { messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'file', file_id: CANARY } }] }] },
    'messages[0].content[0].source.type',
    'must be one of base64, url',
  ],
];

export const MESSAGES_CASES: readonly CompatibleCase[] = [
  ...fieldCases(MESSAGES_FIELDS, around),
  ...OTHERS.map(([name, more, param = '', predicate]) => ({
    name,
    body: around(more),
    ...(predicate !== undefined && { refusal: { message: `${param} ${predicate}`, param } }),
  })),
];
