/**
 * What the schemas cannot say: what a shape is and what its fields mean, with the defaults that parsing applies. A test
 * holds that every note is about a field that exists, that no field lacks one, and that the defaults are the real ones.
 */

import { CHAT_NOTES } from './chat-notes.js';
import { COMPATIBLE_NOTES, COMPATIBLE_SHAPES } from './compatible-notes.js';
import { DECISION_NOTES } from './decision-notes.js';
import type { Notes } from './note.js';

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
  HealthState: 'Whether this server takes work, in the shape that load balancers and llama-server’s users expect.',
  Readiness: 'Whether this server takes work.',
};

/** What each field of a named part means. */
export const NOTES: Notes = {
  ...CHAT_NOTES,
  ...COMPATIBLE_NOTES,
  ...DECISION_NOTES,
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
