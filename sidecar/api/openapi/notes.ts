/**
 * What the schemas cannot say: what a shape is and what its fields mean, with the defaults that parsing applies. A test holds that every
 * note is about a field that exists, that no field lacks one, and that the defaults are the real ones.
 */
import { CHAT_NOTES, COMPATIBLE_NOTES, COMPATIBLE_SHAPES, each, REQUESTED_MODEL, type Notes } from './chat-notes.js';

/** What each named part is. */
export const SHAPES: Readonly<Record<string, string>> = {
  ChatCompletionRequest: 'The body of POST /v1/chat/completions. Closed: any other field is refused.',
  Message: 'One message, by its `role`.',
  ContentPart: 'One part of a user message, by its `type`.',
  ToolCall: 'A call that the assistant made earlier.',
  ToolParameters: 'What a tool takes. Checked against this contract, not against the dialect that `$schema` names.',
  PropertySchema:
    'What one parameter may be. Recursive; a body nests at most 64 levels deep and holds at most 262,144 values.',
  ...COMPATIBLE_SHAPES,
  ChatCompletion: 'A whole reply.',
  CompletionToolCall: 'A call that the model asks for. `arguments` is the text of a JSON object.',
  Usage: 'Tokens of one request: the prompt once, the completions of all choices together.',
  ChatCompletionChunk: 'One frame of a stream.',
  UsageChunk: 'The frame that `stream_options.include_usage` asks for, once, before `[DONE]`.',
  ModelList: 'The models that the key may call in this environment. Decision models are not listed.',
  DecisionsRequest: 'The body of POST /v1/decisions. Closed.',
  Question: 'One question, by its `type`.',
  Decisions: 'An answer for each question, in their order.',
  DecisionAnswer: 'One answer, by its `type`. Its probabilities sum to 1.',
  SystemOneRequest: 'The body of POST /v1/systemone. Open at the top, closed inside.',
  SystemOneQuestion: 'One question, by its `type`.',
  SystemOne: 'An answer for each question, in their order.',
  SystemOneAnswer: 'One answer, by its `type`.',
  EmbeddingsRequest: 'The body of POST /v1/embeddings. Closed.',
  Embeddings: 'A vector for each input, in their order.',
  RerankRequest: 'The body of POST /v1/rerank. Closed.',
  Ranking: 'The documents by their scores.',
  UsagePage: 'What a key, or the keys of its account, have used in some days.',
  UsageBucket: 'One day.',
  UsageResult: 'The sum of one group in a day.',
  Account: 'A key, its limits, and its account.',
  AccountLimit: 'One limit.',
  AccountBalance: 'The prepaid credit of an account.',
  File: 'A stored file.',
  FileList: 'Files of the key’s account.',
  DeletedFile: 'The file is deleted.',
  BatchRequest: 'The body of POST /v1/batches. Closed.',
  Batch: 'Requests of a file, and how far they are.',
  BatchProblem: 'What is wrong with a line, or with the whole batch.',
  BatchList: 'Batches of the key’s account.',
  Error: 'Every refusal and every failure, also as the last frame of a stream that ends early.',
  Health: 'The process is alive.',
  HealthState: 'Whether this server takes work, as load balancers and llama-server’s users expect it.',
  Readiness: 'Whether this server takes work.',
};

const PAGE = {
  data: 'Those of this page.',
  first_id: 'The id of the first one.',
  last_id: 'The id of the last one, for `after` of the next page.',
  has_more: 'Whether there is a next page.',
} as const;
const MODEL = 'The model’s id.';
const IDENTIFIER = 'The question’s id: the answer’s key. Ids differ.';
const SCORE = 'The probability-weighted level index.';
const CHOSEN = 'The most probable option, the first of equals.';

/** What each field of both decision routes means. */
const DECISION_NOTES: Notes = {
  DecisionsRequest: {
    model: REQUESTED_MODEL,
    input: 'What all questions are about. Not blank.',
    questions: 'With the input and the template each must fit in 8,185 tokens and the model’s context.',
    temperature: 'Divides the labels’ log-probabilities (docs/decisions.md#what-the-probability-is).',
    prompt_format_version: 'Pins the served template: any other version is refused.',
  },
  YesNoQuestion: {
    id: IDENTIFIER,
    type: 'Which question.',
    yes: 'What yes means.',
    no: 'What no means.',
  },
  ChoiceQuestion: {
    id: IDENTIFIER,
    type: 'Which question.',
    options: 'Names are single lines and differ, ignoring case and surrounding space.',
  },
  ScoreQuestion: { id: IDENTIFIER, type: 'Which question.', levels: 'From low to high. Not blank.' },
  Decisions: {
    model: MODEL,
    prompt_format_version: 'The template that was used.',
    answers: 'By the questions’ ids.',
    usage: 'The input is counted once per question; nothing is generated.',
  },
  YesNoAnswer: { type: 'Which question.', probabilities: 'They sum to 1.' },
  ChoiceAnswer: { type: 'Which question.', choice: CHOSEN },
  ScoreAnswer: { type: 'Which question.', score: SCORE },
  SystemOneRequest: {
    model: REQUESTED_MODEL,
    state:
      'What all questions are about. Not blank. An array or object is rendered as compact JSON: at most 256 members in each, three levels deep.',
    questions: 'By name, in order. Names are 1 to 128 characters and not blank.',
    ...each('Absent or null.', [
      'temperature',
      'prompt_format_version',
      'return_prompt_token_ids',
      'chat_template_kwargs',
    ]),
  },
  NoulQuestion: { type: 'Which question: yes or no.', criteria: 'What each answer means.' },
  SystemOneChoiceQuestion: {
    type: 'Which question.',
    criteria: 'Labels and what each means, in order. Labels differ, ignoring case and surrounding space.',
  },
  SystemOneScoreQuestion: { type: 'Which question.', criteria: 'Levels, from low to high.' },
  SystemOne: {
    id: 'A fresh UUID.',
    model: MODEL,
    answers: 'By the questions’ names.',
    usage: 'The state is counted once per question; nothing is generated.',
  },
  NoulAnswer: { type: 'Which question.', noul: 'The probability of yes.' },
  SystemOneChoiceAnswer: { type: 'Which question.', choice: CHOSEN },
  SystemOneScoreAnswer: { type: 'Which question.', score: SCORE, legend: 'The levels as they were given, by index.' },
};

/** What each field of embeddings and rankings means. */
const INPUT_NOTES: Notes = {
  EmbeddingsRequest: {
    model: REQUESTED_MODEL,
    input: 'A text, texts, tokens, or arrays of tokens; at most 2,048 inputs (docs/contract.md#post-embeddings).',
    encoding_format: '`float`: numbers with ten decimals. `base64`: the 32-bit numbers, least significant byte first.',
    dimensions:
      'Cuts each vector to as many numbers, and makes it a unit again, if the model’s `minDimensions` allows it.',
  },
  Embeddings: { data: 'In the order of the inputs.', model: MODEL, usage: 'Tokens of all inputs.' },
  Embedding: { index: 'Of the input.', embedding: 'The vector, of length 1, in the format that was asked for.' },
  RerankRequest: {
    model: REQUESTED_MODEL,
    query: 'What the documents are scored by.',
    documents: 'Texts, or objects with a `text`; at most 2,048.',
    top_n: 'How many documents are in the answer; absent: all.',
    return_documents: 'The answer repeats the texts.',
  },
  Ranking: {
    model: MODEL,
    score_type: '`logit`: any number; `probability`: 0 to 1. More is better.',
    results: 'The best first, of equal scores the first document.',
    usage: 'Tokens of all pairs: the query counts with each document.',
    meta: 'The same number where Cohere’s clients look for it.',
  },
  RankedDocument: {
    index: 'Of the document.',
    relevance_score: 'Its score.',
    document: 'Its text, if `return_documents` was set.',
  },
};

const PART_OF_COST = ' null: the price list lacks the version of some requests.';

/** What each field of GET /usage and GET /account means. */
const ACCOUNT_NOTES: Notes = {
  UsagePage: {
    data: 'One bucket a day, also of days without usage.',
    has_more: 'Whether there is a next page.',
    next_page: 'The query’s `page` for it.',
    as_of: 'Unix time in seconds: records durable by then are counted.',
  },
  UsageBucket: {
    start_time: 'The beginning of a UTC day, Unix time in seconds.',
    end_time: 'Its end, which is not included.',
    results: 'One for each group; none without usage.',
  },
  UsageResult: {
    input_tokens: 'Of prompts, reused or not.',
    input_cached_tokens: 'Of these, tokens that were reused.',
    output_tokens: 'Of replies.',
    num_model_requests: 'Requests that an engine began.',
    model: 'The model’s id; null without `group_by=model`.',
    api_key_id: 'The key’s id, which is no secret; null without `group_by=api_key_id`.',
    service_tier: 'The tier that requests were served in; null without `group_by=service_tier`.',
    batch: 'Whether they are lines of batches; null without `group_by=batch`.',
    cost: `What is billed: \`value\` in USD as exact text, and its parts.${PART_OF_COST}`,
  },
  File: {
    id: 'The file’s id.',
    bytes: 'Of its content.',
    expires_at: 'Unix time in seconds at which it is deleted.',
    filename: 'As the form named it.',
    purpose: '`batch_output`: answers of a batch.',
    status: 'For clients that ask for it.',
  },
  FileList: PAGE,
  DeletedFile: { id: 'The id that it had.', deleted: 'It is.' },
  BatchRequest: {
    input_file_id: 'A file of the account with purpose `batch`: one request a line.',
    metadata: 'Up to 16 texts of the caller’s, returned with the batch.',
    output_expires_after: 'When the files of answers are deleted. Absent: after 30 days.',
  },
  Batch: {
    id: 'The batch’s id.',
    errors: 'Why it failed, or why it waits.',
    input_file_id: 'The file that it reads.',
    status: 'How far it is.',
    output_file_id: 'Answers, once it has ended; null if no line has one.',
    error_file_id: 'Errors of lines, once it has ended; null if no line has one.',
    expires_at: 'The end of its window, Unix time in seconds.',
    ...each(
      'Unix time in seconds at which it got this status.',
      ['in_progress', 'finalizing', 'completed', 'failed', 'expired', 'cancelling', 'cancelled'].map(
        (it) => `${it}_at`,
      ),
    ),
    request_counts: 'Lines: in all, with an answer, and with an error.',
    usage: 'Tokens of the answers so far.',
    cost: 'What they cost.',
    metadata: 'As the request had it.',
  },
  BatchProblem: {
    code: 'What kind of problem it is.',
    message: 'The problem in words.',
    param: 'Where in the line it is.',
    line: 'The number of the line, from 1.',
  },
  BatchList: PAGE,
  Account: {
    id: 'The account’s name.',
    api_key_id: 'The key’s id, which is no secret.',
    limits: 'Those that the key has.',
    balance: 'Of a key with the entitlement `usage: account`, where credit is checked.',
  },
  AccountLimit: {
    name: 'What is limited.',
    scope: 'Whose limit it is.',
    routes: 'The routes whose requests it counts; null: all that use a model.',
    limit: 'The most.',
    remaining: 'What is left.',
    reset_at: 'When all of it is there again, Unix time in seconds; null: when the requests end.',
  },
  AccountBalance: {
    currency: 'Of all amounts, which are exact text.',
    granted: 'The sum of the account’s grants.',
    settled: 'What its requests have cost.',
    reserved: 'The most that its running requests can cost; of a fleet’s balance: what its sidecars hold.',
    available: 'What is left for further requests.',
    age_ms: 'Of a fleet’s balance: how long ago its store was asked, ms.',
  },
};

/** What a field of any part means where its part has no note of its own. */
export const COMMON_NOTES: Readonly<Record<string, string>> = {
  object: 'The kind of object.',
  created_at: 'Unix time in seconds.',
  system_fingerprint: 'Names the weights.',
  role: 'Who speaks.',
  name: 'The speaker’s name.',
  user: 'The end user: those of an account take turns. Never logged in clear.',
  moderation: 'Only null: not served.',
  top_logprobs: 'Only 0: log probabilities are not served.',
  question: 'The question. Not blank.',
  instructions: 'The question; what is not a string is rendered as compact JSON.',
  label_mass: 'The share of the whole next-token distribution that fell on the labels.',
  probabilities: 'By option name, or by level index from `"0"` on. They sum to 1.',
  confidence: 'How far the answer stands out: 0 when the probabilities are even, 1 when certain.',
  truncate: 'Cuts off the end of an input of too many tokens, which is refused otherwise.',
  truncated: 'Indexes of inputs whose ends were cut off.',
  endpoint: 'The route of all lines.',
  completion_window: 'The time for all lines.',
};

const CHAT_DEFAULTS = {
  frequency_penalty: 0,
  presence_penalty: 0,
  n: 1,
  parallel_tool_calls: true,
  store: false,
  stream: false,
  temperature: 1,
  top_p: 1,
} as const;

/** What absent fields count as, by named part. */
export const DEFAULTS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  ChatCompletionRequest: CHAT_DEFAULTS,
  CompatibleChatRequest: CHAT_DEFAULTS,
  DecisionsRequest: { temperature: 1 },
  EmbeddingsRequest: { encoding_format: 'float', truncate: false },
  RerankRequest: { return_documents: false, truncate: false },
};

/** What each field of a named part means. */
export const NOTES: Notes = {
  ...CHAT_NOTES,
  ...COMPATIBLE_NOTES,
  ...DECISION_NOTES,
  ...INPUT_NOTES,
  ...ACCOUNT_NOTES,
  Error: { error: '`message` is for people; `param` is a path into the request, or null (docs/errors.md).' },
  Health: { status: 'Always `ok`.' },
  HealthState: { status: '`ok` with 200, all others with 503.' },
  Readiness: {
    status: '`ready` with 200, all others with 503 (docs/http.md#readiness).',
    parts: 'The state of each part.',
  },
};
