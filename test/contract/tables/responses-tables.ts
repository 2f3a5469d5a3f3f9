/** Fields of POST /v1/responses, written from docs/compatible.md#responses. */
import type { Json } from '../../support/bodies.js';
import {
  entries,
  fieldCases,
  INERT_ROWS,
  type Bodies,
  type CompatibleCase,
  type FieldRow,
  rowsOf,
} from './compatible-tables.js';
import { CANARY } from './rule.js';

const NO_STATE = 'must be null: no response is stored here, so send the whole conversation as input';

/** Fields of POST /v1/responses. */
export const RESPONSES_FIELDS: readonly FieldRow[] = [
  ...rowsOf([
    ['instructions', 'used', [CANARY, '', null], [[[], 'must be a string or null']]],
    ['user', 'used', [CANARY, '', null], [['x'.repeat(257), 'must have at most 256 characters']]],
    ['max_output_tokens', 'used', [5, null], [[0, 'must be at least 1']]],
    ['metadata', 'ignored', [{ [CANARY]: CANARY }], [[entries(65), 'must have at most 64 entries']]],
    ['include', 'ignored', [[CANARY], null], [[CANARY, 'must be an array or null']]],
    ['max_tool_calls', 'ignored', [1, null], [[0, 'must be at least 1']]],
    ['store', 'ignored', [true, null], [[CANARY, 'must be a boolean or null']]],
    ['previous_response_id', 'refused', [null], [[CANARY, NO_STATE]]],
    ['conversation', 'refused', [null], [[CANARY, NO_STATE]]],
    ['prompt', 'refused', [null], [[{ id: CANARY }, 'must be null: no prompts are stored here']]],
    ['background', 'refused', [false, null], [[true, 'must be false: no response is made in the background']]],
    ['prompt_cache_options', 'ignored', [{ mode: 'explicit' }, null], [[entries(17), 'must have at most 16 entries']]],
    ['context_management', 'refused', [null], [[[{ type: CANARY }], 'must be null: no input is left out here']]],
    ['moderation', 'refused', [null], [[{ model: CANARY }, 'must be null: moderation is not served']]],
    ['top_logprobs', 'refused', [0, null], [[1, 'must be 0: log probabilities are not served']]],
    ['truncation', 'ignored', ['auto', 'disabled', null], [[CANARY, 'must be one of auto, disabled']]],
    [
      'client_metadata',
      'ignored',
      [{ [CANARY]: CANARY }, entries(64), null],
      [[entries(65), 'must have at most 64 entries']],
    ],
    [
      'reasoning',
      'used',
      [
        { effort: 'ultra' },
        { max_tokens: 5, context: CANARY, summary: CANARY, generate_summary: CANARY },
        { max_tokens: 0 },
        {},
        null,
      ],
      [
        [{ effort: CANARY }, 'must be one of none, minimal, low, medium, high, xhigh, max, ultra', 'reasoning.effort'],
        [{ max_tokens: -2 }, 'must be at least -1', 'reasoning.max_tokens'],
      ],
    ],
    ['text', 'used', [{ format: { type: 'json_object' } }, { verbosity: CANARY }]],
  ]),
  ...INERT_ROWS,
];

const of = (more: Bodies): Bodies => ({ model: 'not-hosted', input: CANARY, ...more });
const FUNCTION = { type: 'function', name: 'f', parameters: { type: 'object' } };
const NAME = 'a.b-'.repeat(32);

/** Tools and items, and the place and the words of what is refused. */
const PARTS: readonly (readonly [name: string, more: Bodies, refused?: readonly [param: string, predicate: string]])[] =
  [
    ...[
      ...['web_search', 'web_search_preview', 'local_shell', 'mcp', 'file_search', 'code_interpreter', 'tool_search'],
      ...['image_generation', 'computer_use_preview', 'shell', 'apply_patch', 'custom', 'not_known_yet'],
    ].map((type) => [`a tool ${type}`, { tools: [FUNCTION, { type, [CANARY]: { [CANARY]: 1 } }] }] as const),
    ['no namespace’s tools', { tools: [{ type: 'namespace', name: 'n', tools: [] }] }],
    [
      'a namespace of functions and other tools',
      {
        tools: [
          { type: 'namespace', name: NAME, description: CANARY, tools: [FUNCTION, { type: 'custom', name: CANARY }] },
        ],
      },
    ],
    [
      '16,385 items',
      { input: Array<Json>(16_385).fill({ role: 'user', content: CANARY }) },
      ['input', 'must have at most 16384 items'],
    ],
    [
      'a name of 129 characters',
      { tools: [{ ...FUNCTION, name: 'f'.repeat(129) }] },
      ['tools[0].name', 'must have at most 128 characters'],
    ],
    ['a tool’s type', { tools: [{ type: 'Web Search' }] }, ['tools[0].type', 'must match ^[a-z][a-z0-9_]*$']],
    ['a tool without a type', { tools: [{ name: 'f' }] }, ['tools[0].type', 'is required']],
    [
      'a function twice',
      { tools: [FUNCTION, { type: 'namespace', name: 'n', tools: [FUNCTION, FUNCTION] }] },
      ['tools[1].tools[1].name', 'must not be the name of an earlier tool: give each tool its own name'],
    ],
    [
      'too many functions',
      {
        tools: ['a', 'b', 'c', 'd', 'e'].map((name) => ({
          type: 'namespace',
          name,
          tools: Array.from({ length: 110 }, (_, i) => ({ type: 'function', name: `f${i}` })),
        })),
      },
      ['tools', 'must have at most 512 functions, those in namespaces included'],
    ],
    [
      'a forced tool that is not served',
      { tools: [{ type: 'web_search' }], tool_choice: { type: 'web_search' } },
      ['tool_choice.type', 'must be function: web_search is not served, and was left out of the tools'],
    ],
    [
      'another choice',
      { tools: [FUNCTION], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [] } },
      ['tool_choice.type', 'must be function: no other choice is served'],
    ],
    [
      'a forced function of a namespace',
      {
        tools: [{ type: 'namespace', name: 'n', tools: [FUNCTION] }],
        tool_choice: { type: 'function', name: 'f', namespace: 'n' },
      },
    ],
    [
      'a forced function without its namespace',
      { tools: [{ type: 'namespace', name: 'n', tools: [FUNCTION] }], tool_choice: { type: 'function', name: 'f' } },
      ['tool_choice.name', 'must be the name of one of the tools'],
    ],
    [
      'fields of a tool that ask for nothing',
      {
        tools: [
          {
            ...FUNCTION,
            defer_loading: true,
            cache_control: {},
            output_schema: {},
            annotations: {},
            input_examples: [],
          },
        ],
      },
    ],
    ...[
      { type: 'custom_tool_call', call_id: 'c', name: CANARY, input: CANARY },
      { type: 'custom_tool_call_output', call_id: 'c', output: [{ type: 'input_text', text: CANARY }] },
      { type: 'local_shell_call', call_id: 'c', action: { type: 'exec', command: [CANARY] } },
      { type: 'web_search_call', action: { type: 'search', query: CANARY } },
      { type: 'mcp_list_tools', server_label: CANARY, tools: [] },
      { type: 'tool_search_call', execution: 'client', arguments: { query: CANARY } },
      { type: 'tool_search_output', tools: [FUNCTION] },
      { type: 'compaction', encrypted_content: CANARY },
      { type: 'program', call_id: 'c', code: CANARY, fingerprint: CANARY },
      { type: 'agent_message', author: CANARY, recipient: CANARY, content: [{ type: 'input_text', text: CANARY }] },
      { type: 'reasoning', summary: [], encrypted_content: CANARY },
      { type: 'additional_tools', role: 'developer', tools: [FUNCTION, { type: 'custom', name: CANARY }] },
      { type: 'function_call', call_id: 'i'.repeat(8192), id: 'i'.repeat(8192), name: `${CANARY} :/`, arguments: '{}' },
      {
        type: 'function_call',
        call_id: 'c',
        name: CANARY,
        arguments: '{}',
        caller: { type: 'program', caller_id: CANARY },
        async: true,
        created_by: CANARY,
      },
      { type: 'function_call_output', call_id: 'c', output: null },
      {
        type: 'function_call_output',
        call_id: 'c',
        name: CANARY,
        namespace: CANARY,
        caller: { type: 'direct' },
        output: [
          { type: 'input_audio', audio_url: CANARY },
          { type: 'encrypted_content', encrypted_content: CANARY },
        ],
      },
      {
        type: 'function_call_output',
        call_id: 'c',
        output: [
          { type: 'input_image', image_url: `https://${CANARY}`, detail: 'original' },
          { type: 'input_image', file_id: CANARY },
          { type: 'input_file', file_data: CANARY, filename: CANARY },
        ],
      },
    ].map((item) => [`an item ${item.type}`, { input: [{ role: 'user', content: CANARY }, item] }] as const),
    ...['item_reference', 'not_known_yet'].map(
      (type) =>
        [
          `an item ${type}`,
          { input: [{ type, id: CANARY }] },
          ['input[0].type', 'must be one of message, function_call, function_call_output, additional_tools, reasoning'],
        ] as const,
    ),
    [
      'an id that is too long',
      { input: [{ type: 'function_call_output', call_id: 'i'.repeat(8193), output: '' }] },
      ['input[0].call_id', 'must have at most 8192 characters'],
    ],
  ];

export const RESPONSES_CASES: readonly CompatibleCase[] = [
  ...fieldCases(RESPONSES_FIELDS, of),
  ...PARTS.map(([name, more, refused]) => ({
    name,
    body: of(more),
    ...(refused && { refusal: { message: refused.join(' '), param: refused[0] } }),
  })),
];
