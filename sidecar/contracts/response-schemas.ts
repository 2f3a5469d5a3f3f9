/** What POST /responses answers, for {@link ANSWER_SCHEMAS}. */
import { CALL_ID, TEXT, TOOL_NAME, closed } from './common-schema.js';

const COUNT = { type: 'integer', minimum: 0 } as const;
const ID = { type: 'string', minLength: 1, maxLength: 256 } as const;
const STATUS = { enum: ['in_progress', 'completed', 'incomplete'] } as const;
const NONE = { type: 'array', maxItems: 0 } as const;

function parts(part: object): object {
  return { type: 'array', maxItems: 1, items: part };
}

const TEXT_PART = closed(['type', 'text', 'annotations'], {
  type: { const: 'output_text' },
  text: TEXT,
  annotations: NONE,
  logprobs: NONE,
});

const ITEM = {
  type: 'object',
  required: ['type'],
  discriminator: { propertyName: 'type' },
  oneOf: [
    closed(['id', 'type', 'summary', 'content', 'status'], {
      id: ID,
      type: { const: 'reasoning' },
      summary: NONE,
      content: parts(closed(['type', 'text'], { type: { const: 'reasoning_text' }, text: TEXT })),
      status: STATUS,
    }),
    closed(['id', 'type', 'status', 'role', 'content'], {
      id: ID,
      type: { const: 'message' },
      status: STATUS,
      role: { const: 'assistant' },
      content: parts(TEXT_PART),
    }),
    closed(['id', 'type', 'status', 'call_id', 'name', 'arguments'], {
      id: ID,
      type: { const: 'function_call' },
      status: STATUS,
      call_id: CALL_ID,
      name: TOOL_NAME,
      arguments: TEXT,
    }),
  ],
} as const;

const FIELDS = {
  id: ID,
  object: { const: 'response' },
  created_at: COUNT,
  completed_at: { type: ['integer', 'null'], minimum: 0 },
  status: STATUS,
  background: { const: false },
  frequency_penalty: { const: 0 },
  error: { type: 'null' },
  incomplete_details: { type: ['object', 'null'] },
  instructions: { type: 'null' },
  max_output_tokens: { type: ['integer', 'null'] },
  model: { type: 'string' },
  output: { type: 'array', items: ITEM },
  parallel_tool_calls: { type: 'boolean' },
  presence_penalty: { const: 0 },
  previous_response_id: { type: 'null' },
  reasoning: closed(['effort', 'summary'], { effort: { type: ['string', 'null'] }, summary: { type: 'null' } }),
  store: { const: false },
  temperature: { type: 'number' },
  text: { type: 'object' },
  tool_choice: { enum: ['auto', 'required'] },
  tools: NONE,
  top_p: { type: 'number' },
  truncation: { const: 'disabled' },
  usage: {
    type: ['object', 'null'],
    if: { type: 'object' },
    then: closed(['input_tokens', 'input_tokens_details', 'output_tokens', 'output_tokens_details', 'total_tokens'], {
      input_tokens: COUNT,
      input_tokens_details: closed(['cached_tokens'], { cached_tokens: COUNT }),
      output_tokens: COUNT,
      output_tokens_details: closed(['reasoning_tokens'], { reasoning_tokens: COUNT }),
      total_tokens: COUNT,
    }),
  },
  user: { type: 'null' },
  metadata: { type: 'object', maxProperties: 0 },
} as const;

export const RESPONSE = closed(Object.keys(FIELDS), FIELDS);

/** One event of a stream: which fields it has beside these two depends on its type. */
export const RESPONSE_EVENT = {
  type: 'object',
  required: ['type', 'sequence_number'],
  properties: {
    type: { type: 'string', pattern: '^(?:response\\.|error$)' },
    sequence_number: COUNT,
    response: RESPONSE,
    item: ITEM,
    delta: TEXT,
  },
} as const;
