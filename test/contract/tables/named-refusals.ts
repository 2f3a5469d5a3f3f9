/**
 * Refusals and what they name: the place, the field if its name is well known, and of a tool its index and the keyword.
 * A name that the caller chose is never repeated: in these cases each such name and each value is the canary.
 */
import { CANARY } from './rule.js';

type Fields = Readonly<Record<string, unknown>>;

/** `says`: the beginning of the message. */
export type NamedRefusal = readonly [more: Fields, says: string, param: string | null];

/** `compatible` is named only if that setting would accept the whole body. */
const SETTING = '; `contract: compatible` accepts it';
const ACCEPTED = `which is outside the contract${SETTING}`;
const REFUSED = 'which is outside the contract; its fields are ';
const UNKNOWN = 'a field outside the contract; its fields are ';
/** Under `compatible` one that is not named is counted. */
const counted = (at: number, of: number): string =>
  `a field outside the contract, number ${at} of its ${of}; its fields are `;

const HELLO = { role: 'user', content: CANARY };
const PART = { type: 'text', text: CANARY };
const message = (field: string): Fields => ({
  messages: [HELLO, { role: 'assistant', content: CANARY, [field]: null }],
});

const toolOf = (name: string, parameters: object): Fields => ({ type: 'function', function: { name, parameters } });

/** The parameters of the second of two tools, with a keyword inside a property that the caller named. */
const parametersOf = (keyword: string, value: unknown): object => ({
  type: 'object',
  properties: { [CANARY]: { type: 'array', items: { type: 'string', [keyword]: value } } },
});
const chatTools = (keyword: string, value: unknown): Fields => ({
  tools: ['a', 'b'].map((name, i) => ({
    type: 'function',
    function: { name, parameters: i === 0 ? { type: 'object', properties: {} } : parametersOf(keyword, value) },
  })),
});
const CHAT_TOOL = 'tools[1].function.parameters.properties';

const formatOf = (schema: object): Fields => ({
  response_format: { type: 'json_schema', json_schema: { name: 'a', schema } },
});
const BRANCH = { type: 'object', properties: { [CANARY]: { if: { const: CANARY } } } };

/** Half of an emoji, and where it is by names of the contract. */
const HALF = 'must not hold half a surrogate pair';
const CUT = `${CANARY}\ud83d`;
const CALLED = { id: 'a', type: 'function', function: { name: 'f', arguments: CUT } };
const cutTool = { description: CUT, parameters: { type: 'object', properties: { [CANARY]: { description: CUT } } } };
export const HALVES: readonly (readonly [more: Fields, param: string | null])[] = [
  [{ messages: [HELLO, { role: 'user', content: [PART, { ...PART, text: CUT }] }] }, 'messages[1].content[1].text'],
  [{ messages: [HELLO, { role: 'tool', tool_call_id: 'a', content: CUT }] }, 'messages[1].content'],
  [{ messages: [HELLO, { role: 'assistant', tool_calls: [CALLED] }] }, 'messages[1].tool_calls[0].function.arguments'],
  [{ tools: [{ type: 'function', function: { name: 'f', ...cutTool } }] }, 'tools[0].function.description'],
  [
    { tools: [{ type: 'function', function: { name: 'f', parameters: cutTool.parameters } }] },
    'tools[0].function.parameters.properties',
  ],
];

/** Two tools of one name: a reply would not say which of them it calls. */
const SAME_NAME = 'must not be the name of an earlier tool: give each tool its own name';

/** Refused alike by both chat contracts. */
const CHAT: readonly NamedRefusal[] = [
  [
    { tools: ['x', 'y'].map((key) => toolOf('f', { type: 'object', properties: { [key]: {} } })) },
    `tools[1].function.name ${SAME_NAME}`,
    'tools[1].function.name',
  ],
  [chatTools('contains', {}), `${CHAT_TOOL} has an entry whose items has \`contains\`, ${REFUSED}`, CHAT_TOOL],
];

export const NAMED_STRICT: readonly NamedRefusal[] = [
  ...CHAT,
  [{ repetition_penalty: CANARY }, `the body has \`repetition_penalty\`, ${REFUSED}`, null],
  [{ [CANARY]: CANARY }, `the body has ${UNKNOWN}`, null],
  [{ access_programs: [CANARY] }, `the body has \`access_programs\`, ${REFUSED}`, null],
  [{ image: CANARY }, `the body has \`image\`, ${REFUSED}`, null],
  [chatTools(CANARY, {}), `${CHAT_TOOL} has an entry whose items has ${UNKNOWN}`, CHAT_TOOL],
  [message('cache_control'), `messages[1] has \`cache_control\`, ${ACCEPTED}`, 'messages[1]'],
  [message(CANARY), `messages[1] has a field outside the contract${SETTING}`, 'messages[1]'],
  [message('refusal'), `messages[1] has \`refusal\`, ${ACCEPTED}`, 'messages[1]'],
  [{ top_k: 1 }, `the body has \`top_k\`, ${ACCEPTED}`, null],
  [{ prompt_cache_options: {} }, `the body has \`prompt_cache_options\`, ${ACCEPTED}`, null],
  [{ moderation: { model: CANARY } }, `the body has \`moderation\`, ${REFUSED}`, null],
  [
    { messages: [{ role: 'system', content: [PART] }] },
    `messages[0].content must be a string${SETTING}`,
    'messages[0].content',
  ],
  [
    { messages: [{ ...HELLO, role: 'developer' }] },
    `messages[0].role must be one of system, user, assistant, tool${SETTING}`,
    'messages[0].role',
  ],
  [{ tools: [] }, `tools must have at least 1 item${SETTING}`, 'tools'],
  [{ max_tokens: null }, `max_tokens must be an integer${SETTING}`, 'max_tokens'],
  [
    { messages: [HELLO, { role: 'assistant', content: CANARY, tool_calls: null }] },
    `messages[1].tool_calls must be an array${SETTING}`,
    'messages[1].tool_calls',
  ],
  [
    { messages: [HELLO, { role: 'user', content: [{ ...PART, prompt_cache_breakpoint: {} }] }] },
    `messages[1].content[0] has \`prompt_cache_breakpoint\`, ${ACCEPTED}`,
    'messages[1].content[0]',
  ],
  [chatTools('format', 'uri'), `${CHAT_TOOL} has an entry whose items has \`format\`, ${ACCEPTED}`, CHAT_TOOL],
  ...HALVES.map(([more, param]) => [more, `${param ?? 'the body'} ${HALF}${SETTING}`, param] as const),
  [formatOf({ type: 'object' }), `response_format has \`json_schema\`, ${ACCEPTED}`, 'response_format'],
];

const FORMAT = 'response_format.json_schema.schema.properties';

export const NAMED_COMPATIBLE: readonly NamedRefusal[] = [
  ...CHAT,
  [{ repetition_penalty: CANARY }, 'repetition_penalty must be 1: nothing else is served', 'repetition_penalty'],
  [{ [CANARY]: CANARY }, `the body has ${counted(3, 3)}`, null],
  [{ access_programs: [CANARY] }, `the body has \`access_programs\`, ${REFUSED}`, 'access_programs'],
  [{ image: CANARY }, `the body has \`image\`, ${REFUSED}`, 'image'],
  [chatTools(CANARY, {}), `${CHAT_TOOL} has an entry whose items has ${counted(2, 2)}`, CHAT_TOOL],
  [formatOf(BRANCH), `${FORMAT} has an entry that has \`if\`, ${REFUSED}`, FORMAT],
  // Keywords that limit values, and that no grammar holds.
  ...['dependentRequired', 'unevaluatedProperties', 'minContains', '$dynamicRef', '$recursiveRef'].map(
    (keyword) =>
      [
        chatTools(keyword, CANARY),
        `${CHAT_TOOL} has an entry whose items has \`${keyword}\`, ${REFUSED}`,
        CHAT_TOOL,
      ] as const,
  ),
  [chatTools('required', true), `${CHAT_TOOL} has an entry whose items.required must be an array`, CHAT_TOOL],
  [
    { chat_template_kwargs: { [CANARY]: [] } },
    'chat_template_kwargs has an entry that must be ',
    'chat_template_kwargs',
  ],
  [{ logit_bias: { [CANARY]: 1 } }, 'logit_bias must be empty', 'logit_bias'],
  [{ moderation: { model: CANARY } }, 'moderation must be null: moderation is not served', 'moderation'],
];

const responsesTools = (keyword: string, value: unknown): Fields => ({
  tools: ['a', 'b'].map((name, i) => ({
    type: 'function',
    name,
    parameters: i === 0 ? { type: 'object', properties: {} } : parametersOf(keyword, value),
  })),
});
const TOOL = 'tools[1].parameters.properties';
const TEXT = 'text.format.schema.properties';

export const NAMED_RESPONSES: readonly NamedRefusal[] = [
  [
    { tools: ['x', 'y'].map((description) => ({ type: 'function', name: 'f', description })) },
    `tools[1].name ${SAME_NAME}`,
    'tools[1].name',
  ],
  [
    { input: [{ ...HELLO, cache_control: CANARY }] },
    `input[0] has \`cache_control\`, ${REFUSED}`,
    'input[0].cache_control',
  ],
  [{ input: [{ ...HELLO, [CANARY]: CANARY }] }, `input[0] has ${counted(3, 3)}`, 'input[0]'],
  ...['access_programs', 'image'].map(
    (name) => [{ [name]: CANARY }, `the body has \`${name}\`, ${REFUSED}`, name] as const,
  ),
  [{ messages: [HELLO] }, `the body has \`messages\`, ${REFUSED}`, null],
  [{ [CANARY]: CANARY }, `the body has ${counted(3, 3)}`, null],
  ...['mode', 'allowed_callers'].map(
    (name) =>
      [
        { tools: [{ type: 'function', name: 'f', [name]: CANARY }] },
        `tools[0] has \`${name}\`, ${REFUSED}`,
        `tools[0].${name}`,
      ] as const,
  ),
  [{ previous_response_id: CANARY }, 'previous_response_id must be null', 'previous_response_id'],
  [responsesTools('contains', {}), `${TOOL} has an entry whose items has \`contains\`, ${REFUSED}`, TOOL],
  [responsesTools(CANARY, {}), `${TOOL} has an entry whose items has ${counted(2, 2)}`, TOOL],
  [
    { text: { format: { type: 'json_schema', name: 'a', schema: BRANCH } } },
    `${TEXT} has an entry that has \`if\`, ${REFUSED}`,
    TEXT,
  ],
];

/** Schemas that a contract accepts and that no grammar can enforce: refused with 422. */
const ITEMS = { type: 'array', minItems: 257, items: {} };
const NO_VALUE = { type: 'object', properties: { [CANARY]: { enum: [CANARY], type: 'integer' } }, required: [CANARY] };
const NOT_HELD = 'has a `$ref` to what is not in the schema.';
const referring = (name: string): object => parametersOf('$ref', `#/$defs/${name}`);

export const UNHELD_STRICT: readonly NamedRefusal[] = [
  [
    { tools: [toolOf('a', { type: 'object', properties: {} }), toolOf('b', NO_VALUE)] },
    'tools[1].function.parameters allows no value.',
    'tools[1].function.parameters',
  ],
];

export const UNHELD_COMPATIBLE: readonly NamedRefusal[] = [
  ...UNHELD_STRICT,
  [chatTools('$ref', `#/$defs/${CANARY}`), `${CHAT_TOOL} has an entry whose items ${NOT_HELD}`, CHAT_TOOL],
  [
    { ...chatTools('$ref', '#/$defs/a'), tool_choice: { type: 'function', function: { name: 'b' } } },
    `${CHAT_TOOL} has an entry whose items ${NOT_HELD}`,
    CHAT_TOOL,
  ],
  [
    { tools: [toolOf('a', { $defs: { [CANARY]: ITEMS }, properties: { [CANARY]: { $ref: `#/$defs/${CANARY}` } } })] },
    'tools[0].function.parameters.$defs has an entry that has a `minItems` over 256.',
    'tools[0].function.parameters.$defs',
  ],
  [formatOf(referring('a')), `${FORMAT} has an entry whose items ${NOT_HELD}`, FORMAT],
  [
    { response_format: { type: 'json_object', schema: referring('a') } },
    `response_format.schema.properties has an entry whose items ${NOT_HELD}`,
    'response_format.schema.properties',
  ],
];

export const UNHELD_RESPONSES: readonly NamedRefusal[] = [
  [responsesTools('$ref', CANARY), `${TOOL} has an entry whose items ${NOT_HELD}`, TOOL],
  [
    { text: { format: { type: 'json_schema', name: 'a', schema: referring(CANARY) } } },
    `${TEXT} has an entry whose items ${NOT_HELD}`,
    TEXT,
  ],
];

const messagesTool = (keyword: string, value: unknown): Fields => ({
  tools: [
    { name: 'a', input_schema: { type: 'object', properties: {} } },
    { name: 'b', input_schema: parametersOf(keyword, value) },
  ],
});
const MESSAGES_TOOL = 'tools[1].input_schema.properties';
const OUTPUT = 'output_config.format.schema.properties';

export const NAMED_MESSAGES: readonly NamedRefusal[] = [
  [
    { tools: ['x', 'y'].map((description) => ({ name: 'f', description, input_schema: { type: 'object' } })) },
    `tools[1].name ${SAME_NAME}`,
    'tools[1].name',
  ],
  // `compaction` asks for another kind of answer, `billing_policy` for another account.
  ...['input', 'compaction', 'billing_policy', 'safeguards', 'context_hint'].map(
    (name) => [{ [name]: { type: CANARY } }, `the body has \`${name}\`, ${REFUSED}`, name] as const,
  ),
  [{ [CANARY]: CANARY }, `the body has ${counted(3, 3)}`, null],
  [messagesTool(CANARY, {}), `${MESSAGES_TOOL} has an entry whose items has ${counted(2, 2)}`, MESSAGES_TOOL],
  [{ container: CANARY }, 'container must be null: no tool runs here', 'container'],
  [
    { messages: [HELLO, { role: 'assistant', content: [{ type: CANARY, [CANARY]: CANARY }] }] },
    'messages[1].content[0].type must be one of text, thinking, redacted_thinking, tool_use',
    'messages[1].content[0].type',
  ],
  [
    messagesTool('contains', {}),
    `${MESSAGES_TOOL} has an entry whose items has \`contains\`, ${REFUSED}`,
    MESSAGES_TOOL,
  ],
];

export const UNHELD_MESSAGES: readonly NamedRefusal[] = [
  [messagesTool('$ref', CANARY), `${MESSAGES_TOOL} has an entry whose items ${NOT_HELD}`, MESSAGES_TOOL],
  [
    { output_config: { format: { type: 'json_schema', schema: referring(CANARY) } } },
    `${OUTPUT} has an entry whose items ${NOT_HELD}`,
    OUTPUT,
  ],
];

/** Paths that are not served, with the answer’s hint. */
export const NOT_SERVED: Readonly<Record<'strict' | 'compatible', readonly (readonly [path: string, says: RegExp])[]>> =
  {
    strict: [
      ['/v1/audio/speech', /Served are POST \/v1\/chat\/completions, .*GET \/v1\/models; GET \/v1\/openapi\.json/],
      ['/v1/completions', /Served are POST \/v1\/chat\/completions, /],
      [`/v1/${CANARY}?${CANARY}`, /Served are POST \/v1\/chat\/completions, /],
      [
        '/v1/responses',
        /set `contract` to `compatible` \(RA_CONTRACT=compatible\), and here it is `strict`\. Chat is at POST \/v1\/chat/,
      ],
      ['/v1/messages', /set `contract` to `compatible` /],
      ['/v1/messages/count_tokens', /set `contract` to `compatible` /],
      [`/v1/models/${CANARY}`, /set `contract` to `compatible` .* GET \/v1\/models lists the models/],
      ['/v1//chat/completions', /nothing at this path, which has a slash too many\. Served are /],
      ['/v1/models/', /nothing at this path, which has a slash too many\. Served are /],
      [`/v1//${CANARY}/`, /nothing at this path\. Served are /],
    ],
    compatible: [
      [
        '/v1/audio/speech',
        /Served are POST \/v1\/chat\/completions, .*POST \/v1\/responses, POST \/v1\/messages, .*GET \/v1\/models\/\{id\}/,
      ],
      [`/v1/responses/${CANARY}`, /Served are POST \/v1\/chat\/completions, /],
    ],
  };
