import { INERT_FIELDS } from '../../contracts/inert-fields.js';

/** One note for each of these fields. */
export function each(note: string, names: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(names.map((name) => [name, note]));
}

const MODEL = 'The model’s id.';

export const REQUESTED_MODEL =
  'A model of the route’s kind that the key may call. GET /v1/models lists all but decision models.';

/** Fields of every chunk of a stream. */
const CHUNK = {
  id: 'The reply’s id, the same in every chunk.',
  created: 'Unix time in seconds, the same in every chunk.',
  model: MODEL,
  system_fingerprint: 'Names the weights.',
};

/** What each field of chat and of the model list means. */
export const CHAT_NOTES: Notes = {
  ChatCompletionRequest: {
    model: REQUESTED_MODEL,
    messages: 'The conversation, oldest first.',
    frequency_penalty: 'Lowers a token’s chance with each time it was generated.',
    presence_penalty: 'Lowers the chance of every token that was generated.',
    max_tokens: 'As `max_completion_tokens`, which wins over it.',
    max_completion_tokens:
      'The longest completion, in tokens. Absent: what the prompt leaves of the context. More than that: 400, or under `contract: compatible` cut to it.',
    n: 'Replies, in parallel on seats that no request waits for, else one after another. The prompt counts once.',
    parallel_tool_calls: 'Whether one reply may make several calls; false: it ends with the first one.',
    reasoning_effort:
      'The template’s nearest level; `none`: no thought. Absent: a model that can think does, with exceptions (docs/contract.md#chat-completion-request).',
    response_format: '`json_object`: the reply is one JSON object, or its beginning where it ends early.',
    seed: 'Fixes the random numbers; reply i uses seed + i. Past 2^53 it is rounded to the nearest double. Only a reply that ran alone, outside sessions, is certain to repeat.',
    stop: 'Texts in the content, not in thoughts or calls, that end the reply and are not part of it.',
    store: 'Accepted; nothing is stored.',
    stream: 'Answer as server-sent events.',
    stream_options: '`include_usage`: send a usage chunk before `[DONE]`.',
    temperature: '0: always the most probable token.',
    top_p: 'Samples from the most probable tokens that together reach this share.',
    tool_choice:
      '`none`: the model is not shown the tools; `required`: it must call one. A function that is named here is called once.',
    tools:
      'Functions that the model may call, whose `parameters` constrain the arguments (docs/compatible.md#json-schema). 422 from a model that is served without tools, and for tools whose grammar would be too large: past some 1,200 properties, 2,048 values of one enum, 256 alternatives of one value, or combinations of alternatives that multiply.',
  },
  SystemMessage: { content: 'The text.' },
  UserMessage: { content: 'A text, or parts.' },
  AssistantMessage: {
    content: 'The text. This or `tool_calls` must be there.',
    reasoning_content: 'Thought text.',
    tool_calls: 'Calls that were made.',
  },
  ToolMessage: { content: 'What the tool answered.', tool_call_id: 'The call that it answers.' },
  TextPart: { type: 'Which part.', text: 'The text.' },
  ImagePart: {
    type: 'Which part.',
    image_url:
      '`url`: a PNG or JPEG as an RFC 2397 data URL. An https URL, which is never fetched, is answered 400, as is any image by a model without vision.',
  },
  ToolCall: {
    id: 'The call’s id, which the tool’s message names.',
    type: 'Which tool.',
    function:
      'Its name, and its arguments as text. Under the strict contract 422 where they are not JSON, nest over 64 levels deep, or have over 131,072 values in all calls together.',
    index: 'As in the answer; ignored.',
  },
  Tool: { type: 'Which tool.', function: 'Its name, what it does and what it takes.' },
  ToolParameters: {
    type: 'An object.',
    properties: 'Parameters by name; `__proto__` is no name.',
    required: 'Names of the parameters that must be given.',
    additionalProperties: 'Whether other parameters are allowed, or what they must be.',
    $schema: 'A dialect of json-schema.org; otherwise ignored.',
  },
  PropertySchema: {
    type: 'The kind of value.',
    description: 'What it is, for the model.',
    enum: 'The values it can take.',
    const: 'The one value it can take.',
    default: 'What an absent value counts as.',
    items: 'What the elements of an array must be.',
    properties: 'Members of an object by name; `__proto__` is no name.',
    required: 'Names of the members that must be there.',
    additionalProperties: 'Whether other members are allowed, or what they must be.',
    allOf: 'All of these must hold.',
    anyOf: 'At least one of these must hold.',
    oneOf: 'Exactly one of these must hold.',
    minimum: 'The least number.',
    maximum: 'The greatest number.',
    minLength: 'The fewest characters.',
    maxLength: 'The most characters.',
    pattern: 'A regular expression. It is never run on the server.',
  },
  ChatCompletion: {
    id: 'The reply’s id.',
    created: 'Unix time in seconds.',
    model: MODEL,
    choices: 'The replies, in order.',
    usage: 'Tokens.',
    metadata: 'The weights, and which completion tokens each version of them produced.',
  },
  CompletionChoice: {
    index: 'The reply’s place among the choices.',
    message: 'The reply.',
    finish_reason: 'Why it ended. A call that `length` cuts is left out here, and unfinished in a stream.',
    logprobs: 'Never given.',
    matched_stop: 'The stop text, or the id of the end token, that ended it.',
  },
  CompletionToolCall: {
    id: 'The call’s id, to be repeated by the tool’s message.',
    type: 'Which tool.',
    function: 'Its name, and its arguments as text.',
    index: 'The place among the message’s calls.',
  },
  Usage: {
    prompt_tokens: 'Of the prompt, reused or not.',
    completion_tokens: 'Generated, over all choices.',
    total_tokens: 'Both.',
    reasoning_tokens: 'Of the completion tokens, those of thought, its marks among them.',
    completion_tokens_details: 'What the completion tokens were.',
    prompt_tokens_details: '`cached_tokens`: prompt tokens whose state was reused.',
  },
  ChatCompletionChunk: { ...CHUNK, choices: 'One reply’s next piece (docs/contract.md#stream-frames).' },
  UsageChunk: { ...CHUNK, choices: 'None.', usage: 'Tokens.' },
  ModelList: { data: '`id` is what requests name in `model`; `created` is Unix time in seconds.' },
};

/** What the named parts of the compatible contract are. */
export const COMPATIBLE_SHAPES: Readonly<Record<string, string>> = {
  CompatibleChatRequest:
    'The body of POST /v1/chat/completions under `contract: compatible`. Closed too, but further fields of messages, content parts and tool calls are ignored. A field that is null is as if it were absent.',
  ResponsesRequest:
    'The body of POST /v1/responses, under `contract: compatible`. Closed. A field that is null is as if it were absent.',
  MessagesRequest:
    'The body of POST /v1/messages and of POST /v1/messages/count_tokens, under `contract: compatible`. Closed, but further fields of messages, blocks and tools are ignored. A field that is null is as if it were absent.',
  MessageObject: 'A whole reply in the form of the Messages API.',
  MessageEvent: 'One event of a stream, by its `type`, with the fields of that type.',
  MessageError: 'An error of the Messages API, also as the last event of a stream that ends early.',
  TokenCount: 'How long a prompt would be.',
  CountedChunk: 'A chunk of a stream that asks for `continuous_usage_stats`.',
  TieredChunk: 'A chunk of a stream that asks for a `service_tier`.',
  Response: 'A whole response. What the caller sent as content is not repeated in it.',
  ResponseEvent: 'One event of a stream, by its `type`, with further fields of that type.',
  PricedCompletion: 'A whole reply under `contract: compatible`.',
  PricedUsage: 'Tokens of one request and what they cost, under `contract: compatible`.',
  PricedUsageChunk: 'The frame with the usage under `contract: compatible`.',
  Model: 'One model of the list.',
  DescribedModelList:
    'The same list under `contract: compatible`, where each model has its context, what it takes and can do, and its price.',
  DescribedModel: 'One model of that list.',
  AnySchema: 'A JSON schema (docs/compatible.md#json-schema).',
};

const IGNORED = 'Accepted, without effect.';
const TIER =
  '`flex` or `priority`, where the key and the price list have it; otherwise the class of the key (docs/accounts.md#service-tiers).';
const SERVED_TIER = 'The tier that the request was served in; absent if it asked for none.';
const SESSION = 'An id of the session that the request is a turn of (docs/admission.md).';

/** Fields that a chat and a response share, and that do not change the answer. */
const UNREAD = {
  ...each('Only these values, or empty.', Object.keys(INERT_FIELDS)),
  ...each(IGNORED, [
    'metadata',
    'client_metadata',
    'prompt_cache_retention',
    'prompt_cache_options',
    'safety_identifier',
  ]),
  service_tier: TIER,
  prompt_cache_key: SESSION,
};

const LISTED_MODEL = {
  id: 'What a request names.',
  object: 'Always `model`.',
  created: 'When this server began to host it, Unix time in seconds.',
  owned_by: 'Its owner.',
};

export const COMPATIBLE_NOTES: Notes = {
  CompatibleChatRequest: {
    ...CHAT_NOTES['ChatCompletionRequest'],
    response_format: '`json_schema` holds the reply to the schema, with `strict` or without.',
    stream_options:
      '`include_usage`: the stream ends with the usage; `continuous_usage_stats`: each chunk has it. `include_obfuscation` has no effect.',
    tools: 'Functions that the model may call. An empty list offers none.',
    reasoning: '`effort` as `reasoning_effort`; `max_tokens`: the most tokens of thought.',
    thinking: '`type` turns thought on or off; `budget_tokens`: the most tokens of thought.',
    thinking_token_budget: 'The most tokens of thought. 0: no thought; -1: no bound.',
    thinking_budget: 'The most tokens of thought. 0: no thought; -1: no bound.',
    enable_thinking: 'Turns thought on or off.',
    think: 'Turns thought on or off, or a level as `reasoning_effort`.',
    usage: '`include` as `stream_options.include_usage`.',
    top_k: 'How many of the most probable tokens to sample from. 0, -1: all.',
    min_p: 'The least probability of a sampled token, as a part of the most probable one’s.',
    chat_template_kwargs: 'Values that the model’s chat template reads, such as `enable_thinking`.',
    logprobs: 'Only false: log probabilities are not served.',
    logit_bias: 'Only empty: token biases are not served.',
    modalities: 'Only `text`.',
    audio: 'Only null: not served.',
    functions: 'Only null: `tools` took its place.',
    function_call: 'Only null: `tool_choice` took its place.',
    web_search_options: 'Only null: not served.',
    ...UNREAD,
    ...each(IGNORED, ['verbosity', 'prediction']),
  },
  ResponsesRequest: {
    model: REQUESTED_MODEL,
    input: 'A text of the user, or messages, function calls, their outputs and reasoning as items.',
    instructions: 'A system message before the input.',
    max_output_tokens: 'The longest reply, in tokens, reasoning included.',
    ...each('As in chat.', ['temperature', 'top_p', 'user']),
    stream: 'Answer with server-sent events.',
    stream_options: '`include_obfuscation` has no effect.',
    tools: 'Functions, and namespaces of functions. Other tools are left out.',
    tool_choice: '`none`, `auto`, `required`, or one function by its name and namespace.',
    parallel_tool_calls: 'Whether one reply may hold several calls.',
    reasoning:
      '`effort` as `reasoning_effort` in chat; `max_tokens`: the most tokens of thought. No summaries are made.',
    text: '`format` holds the reply to a JSON object or a JSON schema; `verbosity` has no effect.',
    background: 'Only false.',
    previous_response_id: 'Only null: nothing is stored.',
    conversation: 'Only null: nothing is stored.',
    prompt: 'Only null: nothing is stored.',
    context_management: 'Only null: no input is left out.',
    store: 'Accepted; nothing is stored.',
    ...UNREAD,
    ...each(IGNORED, ['include', 'max_tool_calls', 'truncation']),
  },
  MessagesRequest: {
    model: REQUESTED_MODEL,
    messages: 'The conversation, oldest first. Neighbours of one role are one turn.',
    system: 'A text or blocks of text, before the messages.',
    max_tokens:
      'The longest reply, in tokens, thoughts included; cut to what the prompt leaves. Absent: what it leaves.',
    stop_sequences: 'As `stop` in chat.',
    stream: 'Answer with server-sent events.',
    ...each('As in chat.', ['temperature', 'top_p']),
    top_k: 'How many of the most probable tokens to sample from. 0, -1: all.',
    tools:
      'The caller’s own tools, with their `input_schema`. Other types are not offered, nor are those with `defer_loading` until a result refers to them.',
    tool_choice: '`auto`, `any`, `none`, or one tool by its name; with `disable_parallel_tool_use` at most one call.',
    thinking:
      '`disabled`, or absent without an effort: no thought where the model can do without. Else the model thinks; a budget without an effort chooses one.',
    output_config: '`effort` as `reasoning_effort` in chat; `format` holds the reply to a JSON schema.',
    output_format: 'As `output_config.format`.',
    metadata: '`user_id` is `user` in chat.',
    thread: 'Only null: no message is stored.',
    container: 'Only null: no tool runs here.',
    mcp_servers: 'Only empty: no tool runs here.',
    service_tier: TIER,
    ...each(IGNORED, ['cache_control', 'context_management', 'diagnostics', 'speed', 'inference_geo']),
    ...each(IGNORED, ['fallbacks', 'fallback_credit_token', 'user_profile_id', 'workspace_id', 'betas']),
  },
  MessageObject: {
    id: 'Not stored: no later request can name it.',
    type: 'Always `message`.',
    role: 'Always `assistant`.',
    model: 'The model’s id.',
    content: 'Blocks of text, of thought, and of calls, in order. A call that the longest length cut is left out.',
    stop_reason:
      'Why it ended. `max_tokens`: at the length that was asked for; `model_context_window_exceeded`: at what the prompt left of the context.',
    stop_sequence: 'The text of `stop_sequences` that ended it.',
    usage: '`input_tokens` are those of the prompt that were not reused, `cache_read_input_tokens` those that were.',
  },
  MessageEvent: {
    type: 'Which event it is.',
    message: 'The message without its content, in the first event.',
    index: 'Of the block.',
    content_block: 'The block that begins, empty.',
    delta: 'What is added to a block, or why the message ended.',
    usage: 'In the last event but one: tokens of the reply.',
  },
  MessageError: {
    type: 'Always `error`.',
    error: 'Its type, a message, and in `details` the code and the place of the catalogue.',
    request_id: 'As in the header `request-id`.',
  },
  TokenCount: { input_tokens: 'Of the whole prompt, reused or not.' },
  PricedCompletion: { ...CHAT_NOTES['ChatCompletion'], service_tier: SERVED_TIER },
  PricedUsage: {
    ...CHAT_NOTES['Usage'],
    cost: 'USD, the number that is nearest to the price in the usage record.',
    cost_details: 'The parts of the prompt and of the replies.',
  },
  PricedUsageChunk: { ...CHAT_NOTES['UsageChunk'], service_tier: SERVED_TIER },
  CountedChunk: { ...CHAT_NOTES['ChatCompletionChunk'], usage: 'Tokens so far.' },
  TieredChunk: {
    ...CHAT_NOTES['ChatCompletionChunk'],
    usage: 'Tokens so far, with `continuous_usage_stats`.',
    service_tier: SERVED_TIER,
  },
  Model: LISTED_MODEL,
  DescribedModelList: { ...CHAT_NOTES['ModelList'] },
  DescribedModel: {
    ...LISTED_MODEL,
    name: 'The same as `id`.',
    context_length: 'Tokens of its longest seat, which prompt and reply share.',
    ...each('As `context_length`.', ['context_window', 'max_model_len', 'max_input_tokens']),
    max_output_tokens: 'As `context_length`: a reply may be as long as what the prompt leaves.',
    max_tokens: 'As `max_output_tokens`.',
    meta: '`n_ctx` is as `context_length`.',
    architecture: 'What it takes, and what it makes.',
    supported_parameters: 'Fields of a chat that have an effect. Absent while the server starts.',
    pricing: 'USD a token, as exact text.',
  },
  ResponseEvent: {
    type: 'Which event it is.',
    sequence_number: 'From 0 on.',
    response: 'The response, in the first events and the last.',
    item: 'The item that begins or is complete.',
    delta: 'What is added to a text.',
  },
  Response: {
    id: 'Not stored: no later request can name it.',
    object: 'Always `response`.',
    completed_at: 'Unix time in seconds; null where `status` is not `completed`.',
    status: '`completed`, or `incomplete` where the longest length was reached; `in_progress` in a stream.',
    ...each('Always false.', ['background', 'store']),
    frequency_penalty: 'Always 0: not a field of a request here.',
    error: 'Always null: an error is an answer of its own.',
    incomplete_details: '`reason` is `max_output_tokens`.',
    ...each('Always null: not repeated.', ['instructions', 'user']),
    ...each('As asked for.', ['max_output_tokens', 'temperature', 'top_p']),
    model: 'The model that answered.',
    output: 'Reasoning, messages and function calls, in the order in which they came.',
    parallel_tool_calls: 'True where no tools are offered, false where one function is named, else as asked for.',
    presence_penalty: 'Always 0, as `frequency_penalty`.',
    previous_response_id: 'Always null.',
    reasoning: 'The effort asked for.',
    text: '`text` or `json_object`, which also stands for `json_schema`.',
    tool_choice: '`required` also where one function was named, `auto` also for `none`.',
    tools: 'Always empty: not repeated.',
    truncation: 'Always `disabled`.',
    usage: 'Tokens.',
    metadata: 'Always empty.',
    service_tier: SERVED_TIER,
  },
};

/** Notes by named part, then by field. */
export type Notes = Readonly<Record<string, Readonly<Record<string, string>>>>;
