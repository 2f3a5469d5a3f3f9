import { CHAT_NOTES } from './chat-notes.js';
import type { Note, Notes } from './note.js';

/** What the named parts of the compatible contract are. */
export const COMPATIBLE_SHAPES: Readonly<Record<string, string>> = {
  CompatibleChatRequest:
    'The body of POST /v1/chat/completions under `contract: compatible`. Closed too. A field that is null is as if it were absent.',
  AnySchema:
    'A JSON schema of the keywords that tools and schema libraries write. docs/contract.md#json-schema says which are held.',
};

const IGNORED: Note = { description: 'Accepted, without effect.' };

function described(words: Readonly<Record<string, string>>): Readonly<Record<string, Note>> {
  return Object.fromEntries(Object.entries(words).map(([name, description]) => [name, { description }]));
}

export const COMPATIBLE_NOTES: Notes = {
  CompatibleChatRequest: {
    ...CHAT_NOTES['ChatCompletionRequest'],
    ...described({
      response_format: 'With `json_schema` the reply is held to the schema, strict or not.',
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
    }),
    metadata: IGNORED,
    service_tier: IGNORED,
    prompt_cache_key: IGNORED,
    prompt_cache_retention: IGNORED,
    safety_identifier: IGNORED,
    verbosity: IGNORED,
    prediction: IGNORED,
  },
};
