import { CHAT_NOTES } from './chat-notes.js';
import type { Note, Notes } from './note.js';

/** What the named parts of the compatible contract are. */
export const COMPATIBLE_SHAPES: Readonly<Record<string, string>> = {
  CompatibleChatRequest:
    'The body of POST /v1/chat/completions under `contract: compatible`. Closed too, but further fields of messages, content parts and tool calls are ignored. A field that is null is as if it were absent.',
  ResponsesRequest:
    'The body of POST /v1/responses, under `contract: compatible`. Closed. A field that is null is as if it were absent.',
  Response: 'A whole response. What the caller sent as content is not repeated in it.',
  ResponseEvent: 'One event of a stream, by its `type`, with further fields of that type.',
  Model: 'One model of the list.',
  AnySchema:
    'A JSON schema of the keywords that tools and schema libraries write. docs/contract.md#json-schema lists which are enforced.',
};

const IGNORED: Note = { description: 'Accepted, without effect.' };

function described(words: Readonly<Record<string, string>>): Readonly<Record<string, Note>> {
  return Object.fromEntries(Object.entries(words).map(([name, description]) => [name, { description }]));
}

export const COMPATIBLE_NOTES: Notes = {
  CompatibleChatRequest: {
    ...CHAT_NOTES['ChatCompletionRequest'],
    ...described({
      response_format: 'With `json_schema` a grammar constrains the reply to the schema, with `strict` or without.',
      stream_options: 'With `include_usage` true the stream ends with the usage. `include_obfuscation` has no effect.',
      tools: 'Functions that the model may call. An empty list offers none.',
      top_k: 'Of so many of the most probable tokens one is sampled. 0, -1: of all.',
      min_p: 'Tokens less probable than this part of the most probable one’s are not sampled.',
      chat_template_kwargs: 'Values for names that the model’s chat template reads, for example `enable_thinking`.',
      logprobs: 'Only false: log probabilities are not served.',
      top_logprobs: 'Only 0: log probabilities are not served.',
      logit_bias: 'Only empty: token biases are not served.',
      modalities: 'Only `text`.',
      audio: 'Only null: audio is not served.',
      functions: 'Only null: `tools` took its place.',
      function_call: 'Only null: `tool_choice` took its place.',
      web_search_options: 'Only null: web search is not served.',
      moderation: 'Only null: moderation is not served.',
    }),
    metadata: IGNORED,
    service_tier: IGNORED,
    prompt_cache_key: IGNORED,
    prompt_cache_retention: IGNORED,
    prompt_cache_options: IGNORED,
    safety_identifier: IGNORED,
    verbosity: IGNORED,
    prediction: IGNORED,
  },
  ResponsesRequest: {
    ...described({
      model: 'A model that the key may call; GET /v1/models lists them.',
      input: 'A text of the user, or the conversation as items: messages, function calls, their outputs, reasoning.',
      instructions: 'A system message before the input.',
      max_output_tokens: 'The longest reply, in tokens, reasoning included.',
      temperature: 'As in chat.',
      top_p: 'As in chat.',
      stream: 'Answer with server-sent events.',
      stream_options: '`include_obfuscation` has no effect.',
      tools: 'Functions that the model may call. No other tool runs here.',
      tool_choice: '`none`, `auto`, `required`, or one function by its name.',
      parallel_tool_calls: 'Whether one reply may hold several calls.',
      reasoning: '`effort` as `reasoning_effort` in chat; summaries are not made.',
      text: '`format` holds the reply to a JSON object or a JSON schema; `verbosity` has no effect.',
      user: 'As in chat.',
      truncation: 'Only `disabled`: no input is left out.',
      top_logprobs: 'Only 0: log probabilities are not served.',
      background: 'Only false.',
      previous_response_id: 'Only null: no response is stored.',
      conversation: 'Only null: no conversation is stored.',
      prompt: 'Only null: no prompt is stored.',
      context_management: 'Only null: no input is left out.',
      moderation: 'Only null: moderation is not served.',
    }),
    store: { description: 'Accepted; nothing is stored.' },
    include: IGNORED,
    max_tool_calls: IGNORED,
    metadata: IGNORED,
    service_tier: IGNORED,
    prompt_cache_key: IGNORED,
    prompt_cache_retention: IGNORED,
    prompt_cache_options: IGNORED,
    safety_identifier: IGNORED,
  },
  Model: described({
    id: 'What a request names.',
    object: 'Always `model`.',
    created: 'When this server began to host it, Unix time in seconds.',
    owned_by: 'Its owner.',
  }),
  ResponseEvent: described({
    type: 'Which event it is.',
    sequence_number: 'From 0 on.',
    response: 'The response, in the first events and the last.',
    item: 'The item that begins or is complete.',
    delta: 'What is added to a text.',
  }),
  Response: described({
    id: 'Not stored: no later request can name it.',
    object: 'Always `response`.',
    created_at: 'Unix time in seconds.',
    completed_at: 'Unix time in seconds; null where `status` is not `completed`.',
    status: '`completed`, or `incomplete` where the longest length was reached; `in_progress` in a stream.',
    background: 'Always false.',
    frequency_penalty: 'Always 0: not a field of a request here.',
    error: 'Always null: an error is an answer of its own.',
    incomplete_details: '`reason` is `max_output_tokens`.',
    instructions: 'Always null: not repeated.',
    max_output_tokens: 'As asked for.',
    model: 'The model that answered.',
    output: 'Reasoning, messages and function calls, in the order in which they came.',
    parallel_tool_calls: 'True where no tools are offered, false where one function is named, else as asked for.',
    presence_penalty: 'Always 0, as `frequency_penalty`.',
    previous_response_id: 'Always null.',
    reasoning: 'The effort asked for.',
    store: 'Always false.',
    temperature: 'As asked for.',
    text: '`text` or `json_object`, which also stands for `json_schema`.',
    tool_choice: '`required` also where one function was named, `auto` also for `none`.',
    tools: 'Always empty: not repeated.',
    top_p: 'As asked for.',
    truncation: 'Always `disabled`.',
    usage: 'Tokens.',
    user: 'Always null: not repeated.',
    metadata: 'Always empty.',
  }),
};
