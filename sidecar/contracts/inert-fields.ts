/** Fields of other servers' APIs that do nothing here, with the values that ask for nothing. Any other value is refused by name. */

/** The values that ask for nothing, beside null. Without one: an empty text, list or object. */
const NOTHING: Readonly<Record<string, readonly unknown[]>> = {
  // vLLM.
  ignore_eos: [false],
  return_token_ids: [false],
  return_tokens_as_token_ids: [false],
  return_hidden_states: [false],
  echo: [false],
  min_tokens: [0],
  repetition_penalty: [1],
  length_penalty: [1],
  best_of: [1],
  use_beam_search: [false],
  early_stopping: [false],
  stop_token_ids: [],
  bad_words: [],
  priority: [0],
  skip_special_tokens: [true],
  spaces_between_special_tokens: [true],
  include_stop_str_in_output: [false],
  add_generation_prompt: [true],
  continue_final_message: [false],
  add_special_tokens: [false],
  prompt_logprobs: [0, false],
  truncate_prompt_tokens: [],
  allowed_token_ids: [],
  documents: [],
  chat_template: [],
  mm_processor_kwargs: [],
  logits_processors: [],
  structured_outputs: [],
  guided_json: [],
  guided_regex: [],
  guided_choice: [],
  guided_grammar: [],
  include_reasoning: [true],
  kv_transfer_params: [],
  // SGLang.
  no_stop_trim: [false],
  separate_reasoning: [true],
  stream_reasoning: [true],
  lora_path: [],
  session_params: [],
  regex: [],
  ebnf: [],
  // llama-server.
  cache_prompt: [true],
  id_slot: [-1],
  n_keep: [0],
  n_probs: [0],
  n_predict: [-1],
  min_keep: [0],
  typical_p: [1],
  tfs_z: [1],
  top_a: [0],
  repeat_penalty: [1],
  mirostat: [0],
  dynatemp_range: [0],
  xtc_probability: [0],
  dry_multiplier: [0],
  t_max_predict_ms: [0, -1],
  timings_per_token: [false],
  return_progress: [false],
  post_sampling_probs: [false],
  parse_tool_calls: [true],
  samplers: [],
  grammar: [],
  json_schema: [],
  lora: [],
  reasoning_format: ['auto', 'deepseek'],
  // OpenRouter, Ollama and others.
  suffix: [''],
  plugins: [],
  transforms: [],
  models: [],
  route: [],
  provider: [],
  num_ctx: [],
  keep_alive: [],
  prefix: [false],
  mode: [],
};

const EMPTY = { type: ['array', 'object'], maxItems: 0, maxProperties: 0 } as const;

export const INERT_FIELDS: object = Object.fromEntries(
  Object.entries(NOTHING).map(([name, values]) => {
    const listed = values.map((value) => JSON.stringify(value));
    const why = `must be ${listed.length === 0 ? 'null or empty' : listed.join(' or ')}: nothing else is served`;
    const allowed = values.length === 0 ? [null, ''] : [...values, null];
    return [name, { if: EMPTY, else: { enum: allowed, 'x-message': why }, 'x-unlisted': true }];
  }),
);
