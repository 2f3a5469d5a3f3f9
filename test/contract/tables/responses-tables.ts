/** Fields of POST /v1/responses, written from docs/contract.md#responses. */
import { entries, fieldCases, type FieldRow } from './compatible-tables.js';
import { CANARY } from './rule.js';

const NO_STATE = 'must be null: no response is stored here, so send the whole conversation as input';

/** Fields of POST /v1/responses. */
export const RESPONSES_FIELDS: readonly FieldRow[] = [
  { field: 'instructions', effect: 'used', taken: [CANARY, '', null], refused: [[[], 'must be a string or null']] },
  {
    field: 'user',
    effect: 'used',
    taken: [CANARY, '', null],
    refused: [['x'.repeat(257), 'must have at most 256 characters']],
  },
  { field: 'max_output_tokens', effect: 'used', taken: [5, null], refused: [[0, 'must be at least 1']] },
  {
    field: 'metadata',
    effect: 'ignored',
    taken: [{ [CANARY]: CANARY }],
    refused: [[entries(65), 'must have at most 64 entries']],
  },
  { field: 'include', effect: 'ignored', taken: [[CANARY], null], refused: [[CANARY, 'must be an array or null']] },
  { field: 'max_tool_calls', effect: 'ignored', taken: [1, null], refused: [[0, 'must be at least 1']] },
  { field: 'store', effect: 'ignored', taken: [true, null], refused: [[CANARY, 'must be a boolean or null']] },
  { field: 'previous_response_id', effect: 'refused', taken: [null], refused: [[CANARY, NO_STATE]] },
  { field: 'conversation', effect: 'refused', taken: [null], refused: [[CANARY, NO_STATE]] },
  {
    field: 'prompt',
    effect: 'refused',
    taken: [null],
    refused: [[{ id: CANARY }, 'must be null: no prompts are stored here']],
  },
  {
    field: 'background',
    effect: 'refused',
    taken: [false, null],
    refused: [[true, 'must be false: no response is made in the background']],
  },
  {
    field: 'prompt_cache_options',
    effect: 'ignored',
    taken: [{ mode: 'explicit' }, null],
    refused: [[entries(17), 'must have at most 16 entries']],
  },
  {
    field: 'context_management',
    effect: 'refused',
    taken: [null],
    refused: [[[{ type: CANARY }], 'must be null: no input is left out here']],
  },
  {
    field: 'moderation',
    effect: 'refused',
    taken: [null],
    refused: [[{ model: CANARY }, 'must be null: moderation is not served']],
  },
  {
    field: 'top_logprobs',
    effect: 'refused',
    taken: [0, null],
    refused: [[1, 'must be 0: log probabilities are not served']],
  },
  {
    field: 'truncation',
    effect: 'refused',
    taken: ['disabled', null],
    refused: [['auto', 'must be disabled: no input is left out here']],
  },
];

export const RESPONSES_CASES = fieldCases(RESPONSES_FIELDS, (more) => ({
  model: 'not-hosted',
  input: CANARY,
  ...more,
}));
