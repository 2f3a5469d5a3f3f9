import type { Note, Notes } from './note.js';

const MODEL: Note = { description: 'The model’s id.' };

/** What each field of chat and of the model list means. */
export const CHAT_NOTES: Notes = {
  ChatCompletionRequest: {
    model: { description: 'A model that the key may call; GET /v1/models lists them.' },
    messages: { description: 'The conversation, oldest first.' },
    frequency_penalty: { description: 'Lowers a token’s chance with each time it was generated.', default: 0 },
    presence_penalty: { description: 'Lowers the chance of every token that was generated.', default: 0 },
    max_tokens: { description: 'As `max_completion_tokens`, which wins over it.' },
    max_completion_tokens: {
      description:
        'The longest completion, in tokens. Absent: what the prompt leaves of the context. Over what the prompt leaves: 400, or under `contract: compatible` cut to it.',
    },
    n: {
      description:
        'Replies. The prompt is counted once, every completion in full. They run in parallel on seats that no request waits for, the others one after another.',
      default: 1,
    },
    parallel_tool_calls: {
      description: 'Whether one reply may make several calls; false: it ends with the first one.',
      default: true,
    },
    reasoning_effort: {
      description:
        'Reaches the model’s template as the nearest level that it has; `none` asks for no thought. Absent: a model that can think does, but in JSON mode, or if a call is required, only gpt-oss and those whose prompt begins the thought.',
    },
    response_format: {
      description:
        '`json_object`: the reply is one valid JSON object and nothing else, enforced by a grammar. A reply that the longest completion cut (`length`), or a stop string, is the beginning of one.',
    },
    seed: {
      description:
        'Fixes the random numbers of the reply; reply i uses seed + i. Past 2^53 it is rounded to the nearest double. A reply repeats for certain only when it ran alone.',
    },
    stop: {
      description:
        'Texts that end the reply; they are not part of it. Looked for in the content, not in thoughts or calls.',
    },
    store: { description: 'Accepted; nothing is stored.', default: false },
    stream: { description: 'Answer as server-sent events.', default: false },
    stream_options: { description: '`include_usage`: send a usage chunk before `[DONE]`.' },
    temperature: { description: '0: always the most probable token.', default: 1 },
    top_p: { description: 'Samples from the most probable tokens that together reach this share.', default: 1 },
    tool_choice: {
      description:
        '`none`: the model is not shown the tools; `required`: it must call one, and needs `tools`. A function that is named here must be one of `tools` and is called once.',
    },
    tools: {
      description:
        'Functions that the model may call. Calls are read from what the model writes by its chat template; the prompt asks a model whose format is not known for JSON of a fixed form (docs/tool-formats.md). Arguments are constrained to `parameters` as far as a grammar can (docs/contract.md, JSON schema). 422 from a model that is served without tools (`toolFormat: none`), and for tools whose grammar would be too large or too much work: past some 1,200 properties, 2,048 values of one enum, 256 alternatives of one value, or combinations of alternatives that multiply.',
    },
    user: { description: 'The end user, for fairness within the account. Never logged in clear.' },
  },
  SystemMessage: {
    role: { description: 'Who speaks.' },
    content: { description: 'The text.' },
    name: { description: 'The speaker’s name.' },
  },
  UserMessage: {
    role: { description: 'Who speaks.' },
    content: { description: 'A text, or parts.' },
    name: { description: 'The speaker’s name.' },
  },
  AssistantMessage: {
    role: { description: 'Who speaks.' },
    content: { description: 'The text. This or `tool_calls` must be there.' },
    name: { description: 'The speaker’s name.' },
    reasoning_content: { description: 'Thought text.' },
    tool_calls: { description: 'Calls that were made.' },
  },
  ToolMessage: {
    role: { description: 'Who speaks.' },
    content: { description: 'What the tool answered.' },
    tool_call_id: { description: 'The call that it answers.' },
  },
  TextPart: { type: { description: 'Which part.' }, text: { description: 'The text.' } },
  ImagePart: {
    type: { description: 'Which part.' },
    image_url: {
      description:
        '`url`: an https URL or an RFC 2397 data URL; no URL is ever fetched, so an https URL is answered 400, as are all images by a model without vision. PNG or JPEG.',
    },
  },
  ToolCall: {
    id: { description: 'The call’s id, which the tool’s message names.' },
    type: { description: 'Which tool.' },
    function: {
      description:
        'Its name, and its arguments as text. 422 where the model’s template needs them as JSON and they are none, nest more than 64 levels deep, or have more than 131,072 values in all calls together.',
    },
    index: { description: 'As in the answer; ignored.' },
  },
  Tool: {
    type: { description: 'Which tool.' },
    function: { description: 'Its name, what it does and what it takes.' },
  },
  ToolParameters: {
    type: { description: 'An object.' },
    properties: { description: 'Parameters by name; `__proto__` is no name.' },
    required: { description: 'Names of the parameters that must be given.' },
    additionalProperties: { description: 'Whether other parameters are allowed, or what they must be.' },
    $schema: { description: 'A dialect of json-schema.org; otherwise ignored.' },
  },
  PropertySchema: {
    type: { description: 'The kind of value.' },
    description: { description: 'What it is, for the model.' },
    enum: { description: 'The values it can take.' },
    const: { description: 'The one value it can take.' },
    default: { description: 'What an absent value counts as.' },
    items: { description: 'What the elements of an array must be.' },
    properties: { description: 'Members of an object by name; `__proto__` is no name.' },
    required: { description: 'Names of the members that must be there.' },
    additionalProperties: { description: 'Whether other members are allowed, or what they must be.' },
    allOf: { description: 'All of these must hold.' },
    anyOf: { description: 'At least one of these must hold.' },
    oneOf: { description: 'Exactly one of these must hold.' },
    minimum: { description: 'The least number.' },
    maximum: { description: 'The greatest number.' },
    minLength: { description: 'The fewest characters.' },
    maxLength: { description: 'The most characters.' },
    pattern: { description: 'A regular expression. It is never run on the server.' },
  },
  ChatCompletion: {
    id: { description: 'The reply’s id.' },
    object: { description: 'The kind of object.' },
    created: { description: 'Unix time in seconds.' },
    model: MODEL,
    choices: { description: 'The replies, in order.' },
    system_fingerprint: { description: 'Names the weights.' },
    usage: { description: 'Tokens.' },
    metadata: { description: 'The weights, and which completion tokens each version of them produced.' },
  },
  CompletionChoice: {
    index: { description: 'The reply’s place among the choices.' },
    message: { description: 'The reply.' },
    finish_reason: {
      description:
        'Why it ended. `length` may end a reply within a call: such a call is left out here, and unfinished in a stream.',
    },
    logprobs: { description: 'Never given.' },
    matched_stop: { description: 'The stop text, or the id of the end token, that ended it.' },
  },
  CompletionToolCall: {
    id: { description: 'The call’s id, to be repeated by the tool’s message.' },
    type: { description: 'Which tool.' },
    function: { description: 'Its name, and its arguments as text.' },
    index: { description: 'The place among the message’s calls.' },
  },
  Usage: {
    prompt_tokens: { description: 'Of the prompt, reused or not.' },
    completion_tokens: { description: 'Generated, over all choices.' },
    total_tokens: { description: 'Both.' },
    reasoning_tokens: { description: 'Of the completion tokens, those of thought, its marks among them.' },
    completion_tokens_details: { description: 'What the completion tokens were.' },
    prompt_tokens_details: { description: '`cached_tokens`: prompt tokens whose state was reused.' },
  },
  ChatCompletionChunk: {
    id: { description: 'The reply’s id, the same in every chunk.' },
    object: { description: 'The kind of object.' },
    created: { description: 'Unix time in seconds, the same in every chunk.' },
    model: MODEL,
    system_fingerprint: { description: 'Names the weights.' },
    choices: {
      description:
        'One reply’s next piece. `delta.role` comes on its first chunk; `finish_reason` on its last, whose delta is empty. A tool call’s `id`, `type` and name come on its first piece alone.',
    },
  },
  UsageChunk: {
    id: { description: 'The reply’s id, the same in every chunk.' },
    object: { description: 'The kind of object.' },
    created: { description: 'Unix time in seconds, the same in every chunk.' },
    model: MODEL,
    system_fingerprint: { description: 'Names the weights.' },
    choices: { description: 'None.' },
    usage: { description: 'Tokens.' },
  },
  ModelList: {
    object: { description: 'The kind of object.' },
    data: { description: '`id` is what requests name in `model`; `created` is Unix time in seconds.' },
  },
};
