/**
 * What the schemas cannot say: what a shape is and what its fields mean, with the defaults that parsing applies. A test
 * holds that every note is about a field that exists, that no field lacks one, and that the defaults are the real ones.
 */

export interface Note {
  readonly description: string;
  /** What an absent field counts as. */
  readonly default?: unknown;
}

/** What each named part is. */
export const SHAPES: Readonly<Record<string, string>> = {
  ChatCompletionRequest: 'The body of POST /v1/chat/completions. Closed: any other field is refused.',
  Message: 'One message, by its `role`.',
  ContentPart: 'One part of a user message, by its `type`.',
  ToolCall: 'A call that the assistant made earlier.',
  ToolParameters: 'What a tool takes. Checked against this contract, not against the dialect that `$schema` names.',
  PropertySchema: 'What one parameter may be. Recursive; a body nests at most 64 levels deep.',
  ChatCompletion: 'A whole reply.',
  CompletionToolCall: 'A call that the model asks for. `arguments` is the text of a JSON object.',
  Usage: 'Tokens of one request: the prompt once, the completions of all choices together.',
  ChatCompletionChunk: 'One frame of a stream.',
  UsageChunk: 'The frame that `stream_options.include_usage` asks for, once, before `[DONE]`.',
  ModelList: 'The chat models that the key may call in this environment. Decision models are not listed.',
  DecisionsRequest: 'The body of POST /v1/decisions. Closed.',
  Question: 'One question, by its `type`. Each is scored on its own: the others and their order change nothing.',
  Decisions: 'One answer for each question, by the question’s `id`, in the order of the questions.',
  DecisionAnswer: 'One answer, by its `type`. Its probabilities sum to 1.',
  SystemOneRequest: 'The body of POST /v1/systemone. Open at the top, closed inside.',
  SystemOneQuestion: 'One question, by its `type`.',
  SystemOne: 'One answer for each question, by the question’s name, in the order of the questions.',
  SystemOneAnswer: 'One answer, by its `type`.',
  Error: 'Every refusal and every failure, also as the last frame of a stream that ends early.',
  Health: 'The process is alive.',
  Readiness: 'Whether this server takes work.',
};

const MODEL: Note = { description: 'The model’s id.' };
const INSTRUCTIONS: Note = { description: 'The question; what is not a string is rendered as compact JSON.' };
const IDENTIFIER: Note = { description: 'The question’s id: the answer’s key. Ids differ.' };
const WORDING: Note = { description: 'The question. Not blank.' };
const LABEL_MASS: Note = { description: 'The share of the whole next-token distribution that fell on the labels.' };
const PROBABILITIES: Note = { description: 'By option name, or by level index from `"0"` on. They sum to 1.' };
const SCORE: Note = { description: 'The probability-weighted level index.' };
const CHOSEN: Note = { description: 'The most probable option, the first of equals.' };
const CONFIDENCE: Note = {
  description: 'How far the answer stands out: 0 when the probabilities are even, 1 when certain.',
};
const NULL_ONLY: Note = { description: 'Absent or null.' };

/** What each field of a named part means. */
export const NOTES: Readonly<Record<string, Readonly<Record<string, Note>>>> = {
  ChatCompletionRequest: {
    model: { description: 'A model that the key may call; GET /v1/models lists them.' },
    messages: { description: 'The conversation, oldest first.' },
    frequency_penalty: { description: 'Lowers a token’s chance with each time it was generated.', default: 0 },
    presence_penalty: { description: 'Lowers the chance of every token that was generated.', default: 0 },
    max_tokens: { description: 'As `max_completion_tokens`, which wins over it.' },
    max_completion_tokens: {
      description:
        'The longest completion, in tokens. Absent: what the prompt leaves of the context. Prompt and completion over the context: 400.',
    },
    n: { description: 'Replies. The prompt is counted once, every completion in full.', default: 1 },
    parallel_tool_calls: { description: 'Whether one reply may call several tools.' },
    reasoning_effort: { description: 'Reaches the model’s template, which may ignore it.' },
    response_format: { description: '`json_object`: the reply is one valid JSON object.' },
    seed: {
      description:
        'Fixes the random numbers of the reply; reply i uses seed + i. Past 2^53 it is rounded to the nearest double. A reply repeats for certain only when it ran alone.',
    },
    stop: { description: 'Texts that end the reply; they are not part of it.' },
    store: { description: 'Accepted; nothing is stored.', default: false },
    stream: { description: 'Answer as server-sent events.', default: false },
    stream_options: { description: '`include_usage`: send a usage chunk before `[DONE]`.' },
    temperature: { description: '0: always the most probable token.', default: 1 },
    top_p: { description: 'Samples from the most probable tokens that together reach this share.', default: 1 },
    tool_choice: {
      description:
        'Whether tools may or must be called. A named function must be one of `tools`; `required` needs `tools`.',
    },
    tools: { description: 'Functions that the model may call. 422 from a model that has none.' },
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
        '`url`: an https URL or an RFC 2397 data URL; no URL is ever fetched. A model without vision answers 400.',
    },
  },
  ToolCall: {
    id: { description: 'The call’s id, which the tool’s message names.' },
    type: { description: 'Which tool.' },
    function: { description: 'Its name, and its arguments as text.' },
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
    finish_reason: { description: 'Why it ended.' },
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
    reasoning_tokens: { description: 'Of the completion tokens, those of thought.' },
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
  DecisionsRequest: {
    model: { description: 'A decision model that the key may call.' },
    input: { description: 'What all questions are about. Not blank.' },
    questions: { description: 'The questions. With the input and the template each must fit in 8,185 tokens.' },
    temperature: {
      description: 'Divides the labels’ log-probabilities: changes `probabilities`, never `label_mass`.',
      default: 1,
    },
    prompt_format_version: { description: 'Pins the served template: any other version is refused.' },
  },
  YesNoQuestion: {
    id: IDENTIFIER,
    type: { description: 'Which question.' },
    question: WORDING,
    yes: { description: 'What yes means.' },
    no: { description: 'What no means.' },
  },
  ChoiceQuestion: {
    id: IDENTIFIER,
    type: { description: 'Which question.' },
    question: WORDING,
    options: { description: 'Names are single lines and differ, ignoring case and surrounding space.' },
  },
  ScoreQuestion: {
    id: IDENTIFIER,
    type: { description: 'Which question.' },
    question: WORDING,
    levels: { description: 'From low to high. Not blank.' },
  },
  Decisions: {
    object: { description: 'The kind of object.' },
    model: MODEL,
    prompt_format_version: { description: 'The template that was used.' },
    answers: { description: 'By the questions’ ids.' },
    usage: { description: 'The input is counted once per question; nothing is generated.' },
  },
  YesNoAnswer: {
    type: { description: 'Which question.' },
    probabilities: { description: 'They sum to 1.' },
    label_mass: LABEL_MASS,
  },
  ChoiceAnswer: {
    type: { description: 'Which question.' },
    probabilities: PROBABILITIES,
    label_mass: LABEL_MASS,
    choice: CHOSEN,
  },
  ScoreAnswer: {
    type: { description: 'Which question.' },
    probabilities: PROBABILITIES,
    label_mass: LABEL_MASS,
    score: SCORE,
  },
  SystemOneRequest: {
    model: { description: 'A decision model that the key may call.' },
    state: {
      description:
        'What all questions are about. Not blank. An array or object is rendered as compact JSON: at most 256 members in each, three levels deep.',
    },
    questions: { description: 'By name, in order. Names are 1 to 128 characters and not blank.' },
    temperature: NULL_ONLY,
    prompt_format_version: NULL_ONLY,
    return_prompt_token_ids: NULL_ONLY,
    chat_template_kwargs: NULL_ONLY,
  },
  NoulQuestion: {
    type: { description: 'Which question: yes or no.' },
    instructions: INSTRUCTIONS,
    criteria: { description: 'What each answer means.' },
  },
  SystemOneChoiceQuestion: {
    type: { description: 'Which question.' },
    instructions: INSTRUCTIONS,
    criteria: {
      description: 'Labels and what each means, in order. Labels differ, ignoring case and surrounding space.',
    },
  },
  SystemOneScoreQuestion: {
    type: { description: 'Which question.' },
    instructions: INSTRUCTIONS,
    criteria: { description: 'Levels, from low to high.' },
  },
  SystemOne: {
    id: { description: 'A fresh UUID.' },
    model: MODEL,
    answers: { description: 'By the questions’ names.' },
    usage: { description: 'The state is counted once per question; nothing is generated.' },
  },
  NoulAnswer: {
    type: { description: 'Which question.' },
    noul: { description: 'The probability of yes.' },
  },
  SystemOneChoiceAnswer: {
    type: { description: 'Which question.' },
    choice: CHOSEN,
    confidence: CONFIDENCE,
    probabilities: PROBABILITIES,
  },
  SystemOneScoreAnswer: {
    type: { description: 'Which question.' },
    score: SCORE,
    confidence: CONFIDENCE,
    probabilities: PROBABILITIES,
    legend: { description: 'The levels as they were given, by index.' },
  },
  Error: {
    error: {
      description:
        '`message` says what to do and never repeats what was sent; `param` is a path into the request, or null. docs/errors.md lists the codes.',
    },
  },
  Health: { status: { description: 'Always `ok`.' } },
  Readiness: {
    status: { description: '`ready` with 200, `not ready` with 503.' },
    reasons: { description: 'Why not.' },
  },
};
