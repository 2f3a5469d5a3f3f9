/**
 * What `contract: compatible` accepts in addition, field by field, written from docs/compatible.md: whether each field is
 * used, ignored or refused, accepted values, and refused values with the text and the place.
 */
import type { Json } from '../../support/bodies.js';
import { HALVES } from './named-refusals.js';
import { CANARY, type Refusal } from './rule.js';

export type Bodies = Readonly<Record<string, Json>>;

export type Effect = 'used' | 'ignored' | 'refused';

export interface FieldRow {
  readonly field: string;
  readonly effect: Effect;
  /** Of a field that is used: the first value changes the request. */
  readonly taken: readonly Json[];
  readonly refused: readonly (readonly [value: Json, predicate: string, param?: string])[];
}

export type Row = readonly [field: string, effect: Effect, taken: FieldRow['taken'], refused?: FieldRow['refused']];

export function rowsOf(rows: readonly Row[]): readonly FieldRow[] {
  return rows.map(([field, effect, taken, refused = []]) => ({ field, effect, taken, refused }));
}

export interface CompatibleCase {
  readonly name: string;
  readonly body: Bodies;
  /** Absent: it is accepted. */
  readonly refusal?: Refusal;
}

const HELLO = { role: 'user', content: CANARY };
const tool = (more: Bodies): Json => ({ type: 'function', function: { name: 'f', ...more } });
const SCHEMA = { type: 'object', properties: { [CANARY]: { type: 'string', format: 'uri' } } };
const times = (count: number, item: (i: number) => Json): Json[] => Array.from({ length: count }, (_, i) => item(i));
export const entries = (count: number): Bodies =>
  Object.fromEntries(times(count, (i) => [`${CANARY}${i}`, 'x']) as [string, Json][]);

/** Keywords that limit nothing. */
const ANNOTATED = {
  type: 'object',
  'x-google-enum-descriptions': [CANARY],
  properties: {
    [CANARY]: {
      type: 'string',
      enum: ['A'],
      'x-order': 1,
      markdownDescription: CANARY,
      enumNames: [CANARY],
      tsType: 'A',
    },
    b: {
      type: 'string',
      propertyOrdering: [],
      errorMessage: { [CANARY]: CANARY },
      encrypted: true,
      units: 'm',
      xml: {},
      enumDescriptions: [CANARY],
      externalDocs: { url: CANARY },
      $anchor: 'a',
      contentSchema: { [CANARY]: 1 },
      id: CANARY,
    },
  },
};

/** Fields of other servers: the values that ask for nothing, and one that asks for something. */
const INERT: readonly (readonly [field: string, taken: readonly Json[], other: Json, words: string])[] = [
  ...[
    ...['ignore_eos', 'return_token_ids', 'echo', 'use_beam_search', 'continue_final_message', 'prefix'],
    ...['include_stop_str_in_output', 'add_special_tokens', 'timings_per_token', 'return_progress', 'no_stop_trim'],
    ...['return_hidden_states', 'post_sampling_probs', 'early_stopping', 'return_tokens_as_token_ids'],
  ].map((field) => [field, [false, null], true, 'false'] as const),
  ...[
    ...['skip_special_tokens', 'spaces_between_special_tokens', 'add_generation_prompt', 'cache_prompt'],
    ...['separate_reasoning', 'stream_reasoning', 'include_reasoning', 'parse_tool_calls'],
  ].map((field) => [field, [true, null], false, 'true'] as const),
  ...[
    ...['min_tokens', 'priority', 'n_keep', 'n_probs', 'min_keep', 'top_a', 'mirostat', 'dynatemp_range'],
    ...['xtc_probability', 'dry_multiplier'],
  ].map((field) => [field, [0, null], 2, '0'] as const),
  ...[...['repetition_penalty', 'length_penalty', 'best_of', 'typical_p', 'tfs_z', 'repeat_penalty']].map(
    (field) => [field, [1, null], 2, '1'] as const,
  ),
  ...[
    ...['stop_token_ids', 'bad_words', 'documents', 'allowed_token_ids', 'logits_processors', 'samplers', 'lora'],
    ...['plugins', 'transforms', 'models', 'structured_outputs', 'guided_json', 'guided_regex', 'guided_choice'],
    ...['guided_grammar', 'mm_processor_kwargs', 'kv_transfer_params', 'chat_template', 'truncate_prompt_tokens'],
    ...['lora_path', 'session_params', 'regex', 'ebnf', 'grammar', 'json_schema', 'route', 'provider', 'num_ctx'],
    ...['keep_alive', 'mode'],
  ].map((field) => [field, [[], {}, '', null], [CANARY], 'null or empty'] as const),
  ['id_slot', [-1, null], 0, '-1'],
  ['n_predict', [-1, null], 5, '-1'],
  ['prompt_logprobs', [0, false, null], 1, '0 or false'],
  ['t_max_predict_ms', [0, -1, null], 5, '0 or -1'],
  ['reasoning_format', ['auto', 'deepseek', null], 'none', '"auto" or "deepseek"'],
  ['suffix', ['', null], CANARY, '""'],
];

export const INERT_ROWS = rowsOf(
  INERT.map(([field, taken, other, words]): Row => [
    field,
    'refused',
    taken,
    [[other, `must be ${words}: nothing else is served`]],
  ]),
);

/** Fields of the body. */
export const BODY_FIELDS: readonly FieldRow[] = [
  ...rowsOf([
    [
      'top_k',
      'used',
      [40, 0, -1, null],
      [
        [-2, 'must be at least -1'],
        [1.5, 'must be an integer'],
        [CANARY, 'must be an integer'],
      ],
    ],
    ['stop', 'used', [[CANARY], [], null], [[[''], 'must not be empty', 'stop[0]']]],
    ['user', 'used', [CANARY, '', null], [['x'.repeat(257), 'must have at most 256 characters']]],
    [
      'reasoning_effort',
      'used',
      ['xhigh', 'max', 'ultra', 'none', null],
      [['highest', 'must be one of none, minimal, low, medium, high, xhigh, max, ultra']],
    ],
    [
      'reasoning',
      'used',
      [
        { effort: 'low' },
        { max_tokens: 5, exclude: false, enabled: true, summary: CANARY },
        { max_tokens: -1 },
        { max_tokens: 1_048_576 },
        {},
        null,
      ],
      [
        [{ exclude: true }, 'must be false: the thought is a part of the answer', 'reasoning.exclude'],
        [{ max_tokens: 1.5 }, 'must be an integer or null', 'reasoning.max_tokens'],
      ],
    ],
    [
      'thinking',
      'used',
      [{ type: 'disabled' }, { type: 'enabled', budget_tokens: 5, display: CANARY }, { type: 'adaptive' }, null],
      [[{ type: CANARY }, 'must be one of enabled, disabled, adaptive, auto', 'thinking.type']],
    ],
    ...['thinking_token_budget', 'thinking_budget'].map((field): Row => [
      field,
      'used',
      [5, 0, -1, null],
      [[-2, 'must be at least -1']],
    ]),
    ['enable_thinking', 'used', [false, true, null], [[CANARY, 'must be a boolean or null']]],
    [
      'think',
      'used',
      [false, 'high', true, null],
      [[CANARY, 'must be one of true, false, null, none, minimal, low, medium, high, xhigh, max, ultra']],
    ],
    ['usage', 'used', [{ include: true }, {}, null]],
    ['min_p', 'used', [0.5, 0, 1, null], [[1.01, 'must be at most 1']]],
    [
      'chat_template_kwargs',
      'used',
      [{ [CANARY]: true }, { a: 1, b: CANARY, c: null }, entries(32), null],
      [
        [entries(33), 'must have at most 32 entries'],
        [{ [CANARY]: {} }, 'has an entry that must be a string or a number or a boolean or null'],
      ],
    ],
    [
      'response_format',
      'used',
      [
        { type: 'json_schema', json_schema: { name: CANARY, schema: SCHEMA, strict: true, description: CANARY } },
        { type: 'json_schema', json_schema: { name: CANARY, schema: null } },
        { type: 'json_schema', json_schema: { name: `${CANARY}[int]`.padEnd(65, 'x'), schema: SCHEMA } },
        { type: 'json_object', schema: SCHEMA },
        null,
      ],
      [[{ type: 'json_schema' }, 'is required', 'response_format.json_schema']],
    ],
    [
      'stream_options',
      'used',
      [
        { include_usage: true },
        { include_usage: true, continuous_usage_stats: true },
        { include_obfuscation: true, continuous_usage_stats: false },
        {},
        null,
      ],
    ],
    [
      'tools',
      'used',
      [
        [tool({ parameters: SCHEMA, description: null, strict: null })],
        [tool({ name: 'a.b-'.repeat(32), cache_control: { type: CANARY }, annotations: {} })],
        [{ ...(tool({ parameters: ANNOTATED }) as Bodies), cache_control: {}, defer_loading: true }],
        [tool({})],
        [],
        null,
      ],
      [
        [times(129, () => tool({})), 'must have at most 128 items'],
        [[tool({ name: 'a'.repeat(129) })], 'must have at most 128 characters', 'tools[0].function.name'],
        [[tool({ name: 'a/b' })], 'must match ^[A-Za-z0-9_.-]+$', 'tools[0].function.name'],
      ],
    ],
    [
      'client_metadata',
      'ignored',
      [{ [CANARY]: CANARY }, entries(64), null],
      [[entries(65), 'must have at most 64 entries']],
    ],
    ['metadata', 'ignored', [{ [CANARY]: CANARY }, entries(64), null], [[entries(65), 'must have at most 64 entries']]],
    ...(
      [
        ['service_tier', 256],
        ['prompt_cache_key', 1024],
        ['prompt_cache_retention', 256],
        ['safety_identifier', 1024],
      ] as const
    ).map(([field, most]): Row => [
      field,
      field === 'prompt_cache_key' || field === 'service_tier' ? 'used' : 'ignored',
      [CANARY, 'x'.repeat(most), null],
      [['x'.repeat(most + 1), `must have at most ${most} characters`]],
    ]),
    [
      'prompt_cache_options',
      'ignored',
      [{ mode: 'explicit', ttl: '30m' }, entries(16), null],
      [[entries(17), 'must have at most 16 entries']],
    ],
    ['store', 'ignored', [true, false, null], [[CANARY, 'must be a boolean']]],
    ['verbosity', 'ignored', ['low', 'high', null], [[CANARY, 'must be one of low, medium, high']]],
    ['prediction', 'ignored', [{ type: 'content', content: CANARY }, null], [[CANARY, 'must be an object or null']]],
    ['logprobs', 'refused', [false, null], [[true, 'must be false: log probabilities are not served']]],
    ['top_logprobs', 'refused', [0, null], [[1, 'must be 0: log probabilities are not served']]],
    ['logit_bias', 'refused', [{}, null], [[{ [CANARY]: 1 }, 'must be empty: token biases are not served']]],
    [
      'modalities',
      'refused',
      [['text'], null],
      [[['text', 'audio'], 'must be text: other modalities are not served', 'modalities[1]']],
    ],
    ['audio', 'refused', [null], [[{ voice: CANARY }, 'must be null: audio is not served']]],
    ['functions', 'refused', [null], [[[], 'must be null: send tools']]],
    ['function_call', 'refused', [null], [[CANARY, 'must be null: send tool_choice']]],
    ['web_search_options', 'refused', [null], [[{}, 'must be null: web search is not served']]],
    ['moderation', 'refused', [null], [[{ model: CANARY }, 'must be null: moderation is not served']]],
  ]),
  ...INERT_ROWS,
];

const MARKED = { prompt_cache_breakpoint: { mode: 'explicit' } };
/** Fields that other servers and frameworks write into histories. */
export const OF_OTHERS: Bodies = {
  id: CANARY,
  index: 0,
  cache_control: { type: CANARY },
  provider_specific_fields: { [CANARY]: CANARY },
  reasoning_details: [{ type: CANARY, text: CANARY }],
  extra_content: { google: { thought_signature: CANARY } },
  annotations: [{ [CANARY]: 1 }],
  [CANARY]: [CANARY],
};

/** Refused values of the API, under the page’s names. */
export const REFUSED_VALUES: readonly (readonly [name: string, more: Bodies, param: string, predicate: string])[] = [
  ...['input_audio', 'file'].map(
    (type) =>
      [
        type,
        { messages: [{ role: 'user', content: [{ type, [type]: { file_id: CANARY } }] }] },
        'messages[0].content[0].type',
        'must be one of text, image_url',
      ] as const,
  ),
  [
    'function',
    { messages: [HELLO, { role: 'function', name: CANARY, content: CANARY }] },
    'messages[1].role',
    'must be one of system, developer, user, assistant, tool',
  ],
  [
    'custom',
    { tools: [{ type: 'custom', custom: { name: CANARY } }] },
    'tools[0].type',
    'must be function: no other tool is served',
  ],
  [
    'allowed_tools',
    { tools: [tool({})], tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [] } } },
    'tool_choice.type',
    'must be function: no other choice is served',
  ],
];

/** Refused by the strict contract too, with the same text. */
const BOUNDS: readonly (readonly [more: Bodies, param: string, predicate: string])[] = [
  [{ model: '' }, 'model', 'must not be empty'],
  [{ temperature: 2.001 }, 'temperature', 'must be at most 2'],
  [{ temperature: CANARY }, 'temperature', 'must be a number'],
  [{ n: 17 }, 'n', 'must be at most 16'],
  [{ max_tokens: 0 }, 'max_tokens', 'must be at least 1'],
  [{ stop: times(5, () => CANARY) }, 'stop', 'must have at most 4 items'],
  [{ messages: [] }, 'messages', 'must have at least 1 item'],
  [{ messages: times(16_385, () => HELLO) }, 'messages', 'must have at most 16384 items'],
  [{ tool_choice: 'required' }, 'tool_choice', 'must not be required without tools'],
];

const CALL = { id: 'a', type: 'function', function: { name: 'f', arguments: CANARY } };

/** Messages after the first one. */
const MESSAGES: readonly (readonly [message: Bodies, refused?: readonly [predicate: string, param: string]])[] = [
  [{ role: 'developer', content: CANARY, name: null }],
  [{ role: 'system', content: [{ type: 'text', text: CANARY }] }],
  [{ role: 'user', content: '' }],
  [{ role: 'user', content: [{ type: 'text', text: '' }] }],
  [
    {
      role: 'user',
      content: [
        { type: 'text', text: CANARY, ...MARKED },
        { type: 'image_url', image_url: { url: 'data:,x' }, ...MARKED },
      ],
    },
  ],
  [{ role: 'assistant' }],
  [{ role: 'assistant', content: null, tool_calls: null, refusal: CANARY, reasoning: CANARY, parsed: { [CANARY]: 1 } }],
  [
    {
      role: 'assistant',
      content: '',
      tool_calls: [],
      index: 0,
      annotations: [{ [CANARY]: 1 }],
      audio: null,
      function_call: null,
    },
  ],
  [{ role: 'assistant', content: [{ type: 'text', text: CANARY, role: 'assistant', index: 0, annotations: [] }] }],
  [{ role: 'assistant', content: [{ type: 'refusal', refusal: CANARY }] }],
  [
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: CANARY, signature: CANARY },
        { type: 'thinking', thinking: [{ type: 'text', text: CANARY }] },
        { type: 'reasoning', text: CANARY },
        { type: 'reasoning', reasoning: CANARY, summary: [CANARY] },
        { type: 'redacted_thinking', data: CANARY },
        { type: 'output_text', text: CANARY, annotations: [] },
      ],
    },
  ],
  [{ role: 'assistant', content: CANARY, reasoning: { [CANARY]: [CANARY] } }],
  [
    { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'f', input: {} }] },
    [
      'must be one of text, refusal, output_text, thinking, reasoning, redacted_thinking',
      'messages[1].content[0].type',
    ],
  ],
  [
    {
      role: 'assistant',
      tool_calls: [{ id: 'a', function: { name: 'f', arguments: CANARY, parsed_arguments: null }, index: null }],
    },
  ],
  [{ role: 'tool', content: [{ type: 'text', text: CANARY }], tool_call_id: 'a', name: CANARY }],
  [{ role: 'user', content: [{ type: 'text', text: CANARY, ...OF_OTHERS }], ...OF_OTHERS }],
  [{ role: 'system', content: [{ type: 'text', text: CANARY, ...OF_OTHERS }], ...OF_OTHERS }],
  [{ role: 'tool', content: [{ type: 'text', text: CANARY, ...OF_OTHERS }], tool_call_id: 'a', ...OF_OTHERS }],
  [{ role: 'assistant', content: null, tool_calls: [{ ...OF_OTHERS, ...CALL }], prefix: false, partial: null }],
  [{ role: 'assistant', content: CANARY, ...entries(30) }],
  [{ role: 'assistant', content: CANARY, ...entries(31) }, ['must have at most 32 entries', 'messages[1]']],
  [{ role: 'user', content: CANARY, tool_calls: null, tool_call_id: null, images: null }],
  [
    { role: 'user', content: CANARY, tool_call_id: CANARY },
    ['must be null: it would have no effect here', 'messages[1].tool_call_id'],
  ],
  [
    { role: 'user', content: [{ type: 'text', text: CANARY, image_url: { url: CANARY } }] },
    ['must be null: it would have no effect here', 'messages[1].content[0].image_url'],
  ],
  [
    { role: 'user', content: CANARY, images: [CANARY] },
    ['must be null: send parts of the type image_url', 'messages[1].images'],
  ],
  [
    { role: 'assistant', content: CANARY, prefix: true },
    ['must be false: no reply continues a message', 'messages[1].prefix'],
  ],
  [
    { role: 'assistant', content: CANARY, partial: true },
    ['must be false: no reply continues a message', 'messages[1].partial'],
  ],
  [
    { role: 'assistant', tool_calls: [{ ...CALL, function: { ...CALL.function, [CANARY]: 1 } }] },
    [
      'has a field outside the contract, number 3 of its 3; its fields are name, arguments, parsed_arguments',
      'messages[1].tool_calls[0].function',
    ],
  ],
  [{ role: 'assistant', audio: { id: CANARY } }, ['must be null: audio is not served', 'messages[1].audio']],
  [{ role: 'assistant', function_call: {} }, ['must be null: send tool_calls', 'messages[1].function_call']],
  [{ role: 'tool', content: CANARY }, ['is required', 'messages[1].tool_call_id']],
  [{ role: 'assistant', tool_calls: [{ ...CALL, id: 'i'.repeat(8192) }] }],
  [
    { role: 'assistant', tool_calls: [{ ...CALL, id: 'i'.repeat(8193) }] },
    ['must have at most 8192 characters', 'messages[1].tool_calls[0].id'],
  ],
  [{ role: 'tool', content: null, tool_call_id: 'i'.repeat(8192) }],
  [{ role: 'tool', tool_call_id: 'a' }],
  [{ role: 'tool', tool_call_id: 'i'.repeat(8193) }, ['must have at most 8192 characters', 'messages[1].tool_call_id']],
  [
    {
      role: 'tool',
      tool_call_id: 'a',
      content: [
        { type: 'text', text: CANARY },
        { type: 'image_url', image_url: { url: `https://${CANARY}`, detail: 'original' } },
      ],
    },
  ],
  [
    { role: 'system', content: [{ type: 'image_url', image_url: { url: 'data:,x' } }] },
    ['must be text', 'messages[1].content[0].type'],
  ],
  [{ role: 'user', content: CANARY, name: 'Zoë' }],
  [{ role: 'assistant', tool_calls: [{ ...CALL, function: { name: 'a/b: c', arguments: '{}' } }] }],
  [{ role: CANARY, content: CANARY }, ['must be one of system, developer, user, assistant, tool', 'messages[1].role']],
];

/** Names in {@link MESSAGES} that the strict contract does not have. */
export const MESSAGE_FIELDS = [
  ...['refusal', 'reasoning', 'parsed', 'parsed_arguments', 'annotations', 'index', 'audio', 'function_call'],
  ...['prompt_cache_breakpoint', 'cache_control', 'provider_specific_fields', 'reasoning_details', 'extra_content'],
  ...['images', 'prefix', 'partial'],
];

const chat = (more: Bodies): Bodies => ({ model: 'not-hosted', messages: [HELLO], ...more });

/** The cases of some fields, each placed in a body. */
export function fieldCases(rows: readonly FieldRow[], around: (more: Bodies) => Bodies): CompatibleCase[] {
  return rows.flatMap(({ field, taken, refused }) => [
    ...taken.map((value) => ({
      name: `${field} accepts ${JSON.stringify(value).slice(0, 60)}`,
      body: around({ [field]: value }),
    })),
    ...refused.map(([value, predicate, param = field]) => ({
      name: `${field} refuses ${JSON.stringify(value).slice(0, 60)}`,
      body: around({ [field]: value }),
      refusal: { message: `${param} ${predicate}`, param },
    })),
  ]);
}

export const COMPATIBLE_CASES: readonly CompatibleCase[] = [
  ...fieldCases(BODY_FIELDS, chat),
  ...[...HALVES.map(([more]) => more), { metadata: { '\ud83d': '\ud83d' } }].map((more, i) => ({
    name: `half a surrogate pair, ${i}`,
    body: chat(more as Bodies),
  })),
  ...BOUNDS.map(([more, param, predicate]) => ({
    name: `${param} ${predicate}`,
    body: chat(more),
    refusal: { message: `${param} ${predicate}`, param },
  })),
  ...REFUSED_VALUES.map(([name, more, param, predicate]) => ({
    name: `${name} is refused`,
    body: chat(more),
    refusal: { message: `${param} ${predicate}`, param },
  })),
  ...MESSAGES.map(([message, refused]) => ({
    name: `a message ${JSON.stringify(message)}`,
    body: chat({ messages: [HELLO, message] }),
    ...(refused && { refusal: { message: `${refused[1]} ${refused[0]}`, param: refused[1] } }),
  })),
];
