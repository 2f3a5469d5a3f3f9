/**
 * What the schemas cannot say: what a shape is and what its fields mean, with the defaults that parsing applies. A test
 * holds that every note is about a field that exists, that no field lacks one, and that the defaults are the real ones.
 */
import { CHAT_NOTES, COMPATIBLE_NOTES, COMPATIBLE_SHAPES, type Notes, type Note } from './chat-notes.js';

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
  Question: 'One question, by its `type`. Each is scored on its own: the others and their order change nothing.',
  Decisions: 'One answer for each question, by the question’s `id`, in the order of the questions.',
  DecisionAnswer: 'One answer, by its `type`. Its probabilities sum to 1.',
  SystemOneRequest: 'The body of POST /v1/systemone. Open at the top, closed inside.',
  SystemOneQuestion: 'One question, by its `type`.',
  SystemOne: 'One answer for each question, by the question’s name, in the order of the questions.',
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
  HealthState: 'Whether this server takes work, in the shape that load balancers and llama-server’s users expect.',
  Readiness: 'Whether this server takes work.',
};

const STATUS_TIME: Note = { description: 'Unix time in seconds at which it got this status; null: it did not.' };
const PAGE = {
  object: { description: 'The kind of object.' },
  data: { description: 'Those of this page.' },
  first_id: { description: 'The id of the first one; null: there is none.' },
  last_id: { description: 'The id of the last one, for `after` of the next page.' },
  has_more: { description: 'Whether there is a next page.' },
} as const;
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

/** What each field of both decision routes means. */
const DECISION_NOTES: Notes = {
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
};

const USER: Note = { description: 'The caller’s end user: requests of the account’s users take turns.' };
const TRUNCATE: Note = {
  description: 'The end of an input of too many tokens is cut off; otherwise the request is refused.',
  default: false,
};
const TRUNCATED: Note = { description: 'Indexes of the inputs whose ends were cut off; absent: none.' };

/** What each field of embeddings and rankings means. */
const INPUT_NOTES: Notes = {
  EmbeddingsRequest: {
    model: { description: 'An embedding model that the key may call.' },
    input: {
      description:
        'A text, an array of texts, an array of tokens, or an array of arrays of tokens; at most 2,048 inputs. Tokens are taken as they are; a text gets those that the model’s vocabulary puts around it.',
    },
    encoding_format: {
      description: '`float`: numbers with ten decimals. `base64`: the 32-bit numbers, least significant byte first.',
      default: 'float',
    },
    dimensions: {
      description:
        'Numbers of each vector: cut, and made a unit again. Refused where the model’s vectors may not be cut (`minDimensions`).',
    },
    user: USER,
    truncate: TRUNCATE,
  },
  Embeddings: {
    object: { description: 'The kind of object.' },
    data: { description: 'In the order of the inputs.' },
    model: MODEL,
    truncated: TRUNCATED,
    usage: { description: 'Tokens of all inputs, those that the vocabulary puts around them included.' },
  },
  Embedding: {
    object: { description: 'The kind of object.' },
    index: { description: 'Of the input.' },
    embedding: { description: 'The vector, of length 1, in the format that was asked for.' },
  },
  RerankRequest: {
    model: { description: 'A reranker that the key may call.' },
    query: { description: 'What the documents are scored by.' },
    documents: { description: 'Texts, or objects with a `text`; at most 2,048.' },
    top_n: { description: 'How many of the documents are in the answer, the best first; absent: all.' },
    return_documents: { description: 'The answer repeats the texts.', default: false },
    user: USER,
    truncate: TRUNCATE,
  },
  Ranking: {
    object: { description: 'The kind of object.' },
    model: MODEL,
    score_type: {
      description:
        'What the scores are, as the model makes them: `logit`, any number, or `probability`, from 0 to 1. Either way more is better.',
    },
    results: { description: 'The best first, of equal scores the first document.' },
    truncated: TRUNCATED,
    usage: { description: 'Tokens of all pairs: the query counts with each document.' },
  },
  RankedDocument: {
    index: { description: 'Of the document.' },
    relevance_score: { description: 'Its score.' },
    document: { description: 'Its text, if `return_documents` was set.' },
  },
};

const PART_OF_COST = ' null: the price list does not have the version of some requests any more.';

/** What each field of GET /usage and GET /account means. */
const ACCOUNT_NOTES: Notes = {
  UsagePage: {
    object: { description: 'The kind of object.' },
    data: { description: 'One bucket a day, also of days without usage.' },
    has_more: { description: 'Whether further days were asked for.' },
    next_page: { description: 'What `page` of the query for them has to be, or null.' },
    as_of: { description: 'Unix time in seconds: records that were durable then are counted.' },
  },
  UsageBucket: {
    object: { description: 'The kind of object.' },
    start_time: { description: 'The beginning of a UTC day, Unix time in seconds.' },
    end_time: { description: 'Its end, which is not included.' },
    results: { description: 'One for each group; none without usage.' },
  },
  UsageResult: {
    object: { description: 'The kind of object.' },
    input_tokens: { description: 'Of prompts, reused or not.' },
    input_cached_tokens: { description: 'Of these, tokens that were reused.' },
    output_tokens: { description: 'Of replies.' },
    num_model_requests: { description: 'Requests that an engine was given, however they ended.' },
    model: { description: 'The model’s id; null without `group_by=model`.' },
    api_key_id: { description: 'The key’s id, which is no secret; null without `group_by=api_key_id`.' },
    service_tier: { description: 'The tier that requests were served in; null without `group_by=service_tier`.' },
    cost: {
      description: `What is billed: \`value\` in USD as exact text, and its parts.${PART_OF_COST}`,
    },
  },
  File: {
    id: { description: 'The file’s id.' },
    object: { description: 'The kind of object.' },
    bytes: { description: 'Of its content.' },
    created_at: { description: 'Unix time in seconds.' },
    expires_at: { description: 'Unix time in seconds at which it is deleted.' },
    filename: { description: 'As the form named it.' },
    purpose: { description: '`batch_output`: answers of a batch.' },
    status: { description: 'For clients that ask for it.' },
  },
  FileList: PAGE,
  DeletedFile: {
    id: { description: 'The id that it had.' },
    object: { description: 'The kind of object.' },
    deleted: { description: 'It is.' },
  },
  BatchRequest: {
    input_file_id: { description: 'A file of the account with purpose `batch`: one request a line.' },
    endpoint: { description: 'The route of all lines.' },
    completion_window: { description: 'The time for all lines.' },
    metadata: { description: 'Up to 16 texts of the caller’s, returned with the batch.' },
    output_expires_after: { description: 'When the files of answers are deleted. Absent: after 30 days.' },
  },
  Batch: {
    id: { description: 'The batch’s id.' },
    object: { description: 'The kind of object.' },
    endpoint: { description: 'The route of all lines.' },
    errors: { description: 'Why it failed, or why it waits; null: neither.' },
    input_file_id: { description: 'The file that it reads.' },
    completion_window: { description: 'The time for all lines.' },
    status: { description: 'How far it is.' },
    output_file_id: { description: 'Answers, once it has ended; null: there are none.' },
    error_file_id: { description: 'Errors of lines, once it has ended; null: there are none.' },
    created_at: { description: 'Unix time in seconds.' },
    in_progress_at: STATUS_TIME,
    expires_at: { description: 'The end of its window, Unix time in seconds.' },
    finalizing_at: STATUS_TIME,
    completed_at: STATUS_TIME,
    failed_at: STATUS_TIME,
    expired_at: STATUS_TIME,
    cancelling_at: STATUS_TIME,
    cancelled_at: STATUS_TIME,
    request_counts: { description: 'Lines: in all, with an answer, and with an error.' },
    usage: { description: 'Tokens of the answers so far.' },
    cost: { description: 'What they cost.' },
    metadata: { description: 'As the request had it.' },
  },
  BatchProblem: {
    code: { description: 'What kind of problem it is.' },
    message: { description: 'The problem in words.' },
    param: { description: 'Where in the line it is; null: not in one place.' },
    line: { description: 'The number of the line, from 1; null: it is about the whole batch.' },
  },
  BatchList: PAGE,
  Account: {
    object: { description: 'The kind of object.' },
    id: { description: 'The account’s name.' },
    api_key_id: { description: 'The key’s id, which is no secret.' },
    limits: { description: 'Those that the key has.' },
    balance: { description: 'Of a key with the entitlement `usage: account`, where credit is checked.' },
  },
  AccountLimit: {
    name: { description: 'What is limited.' },
    scope: { description: 'Whose limit it is.' },
    routes: { description: 'The routes whose requests it counts; null: all that use a model.' },
    limit: { description: 'The most.' },
    remaining: { description: 'What is left.' },
    reset_at: { description: 'When all of it is there again, Unix time in seconds; null: when the requests end.' },
  },
  AccountBalance: {
    currency: { description: 'Of all amounts, which are exact text.' },
    granted: { description: 'The sum of the account’s grants.' },
    settled: { description: 'What its requests have cost.' },
    reserved: { description: 'The most that its running requests can cost.' },
    available: { description: 'What is left for further requests.' },
  },
};

/** What each field of a named part means. */
export const NOTES: Notes = {
  ...CHAT_NOTES,
  ...COMPATIBLE_NOTES,
  ...DECISION_NOTES,
  ...INPUT_NOTES,
  ...ACCOUNT_NOTES,
  Error: {
    error: {
      description:
        '`message` says what to do and never repeats what was sent; `param` is a path into the request, or null. docs/errors.md lists the codes.',
    },
  },
  Health: { status: { description: 'Always `ok`.' } },
  HealthState: { status: { description: '`ok` with 200, all others with 503, as the states of `/readyz`.' } },
  Readiness: {
    status: {
      description:
        '`ready` with 200, all others with 503: `starting` is temporary, `draining` ends with the process, `unhealthy` may need an operator.',
    },
    parts: {
      description:
        'The state of each part: `models`, `usage` (whether it can be recorded) and, if prepaid credit is checked, `credit`; `prompts` while a prompt host cannot be started. The reasons are on the operators’ listener only.',
    },
  },
};
