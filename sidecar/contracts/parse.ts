/** Body bytes to checked requests. Pure and synchronous: runs inline for small bodies and in the prompt host for others. */
import { type ContractError, contractError } from '../domain/errors.js';
import { toChatRequest } from './chat.js';
import { CHAT_SCHEMA } from './chat-schema.js';
import { toCompatibleRequest } from './compatible.js';
import { COMPATIBLE_SCHEMA } from './compatible-schema.js';
import { DECISIONS_SCHEMA, toDecisionRequest } from './decisions.js';
import { EMBEDDINGS_SCHEMA, RERANK_SCHEMA, toEmbeddingRequest, toRerankRequest } from './inputs.js';
import { readJson } from './json.js';
import { toMessagesRequest } from './messages.js';
import { MESSAGES_SCHEMA } from './messages-schema.js';
import { toResponsesRequest } from './responses.js';
import { RESPONSES_SCHEMA } from './responses-schema.js';
import { type Parsed, refuseJson } from './body-refusals.js';
import type {
  BodyForm,
  ChatForm,
  ChatRequest,
  DecisionRequest,
  EmbeddingRequest,
  ModelRequest,
  RerankRequest,
} from './requests.js';
import { SYSTEMONE_SCHEMA, toSystemOneRequest } from './systemone.js';

export type { Parsed } from './body-refusals.js';

/** Parses and checks the body of any route. `invalid` is always a 400; nothing throws. */
export function parseBody(form: BodyForm, bytes: Uint8Array): Parsed<ModelRequest> {
  switch (form) {
    case 'decisions':
    case 'systemone':
      return parseDecisions(form, bytes);
    case 'embeddings':
    case 'rerank':
      return parseInputs(form, bytes);
    default:
      return parseChat(bytes, form);
  }
}

/** Parses and checks the body of POST /embeddings or POST /rerank, which both contracts have alike. */
function parseInputs(form: 'embeddings' | 'rerank', bytes: Uint8Array): Parsed<EmbeddingRequest | RerankRequest> {
  const read = readJson(bytes, { replaceSurrogates: true });
  if (!read.ok) return refuseJson(read, form === 'embeddings' ? EMBEDDINGS_SCHEMA : RERANK_SCHEMA);
  return form === 'embeddings' ? toEmbeddingRequest(read.value) : toRerankRequest(read.value);
}

interface WideForm {
  readonly schema: object;
  readonly toRequest: (value: unknown) => Parsed<ChatRequest>;
}

const WIDE_FORMS: Readonly<Record<Exclude<ChatForm, 'chat'>, WideForm>> = {
  compatible: { schema: COMPATIBLE_SCHEMA, toRequest: (value) => toCompatibleRequest(value) },
  'compatible-billed': { schema: COMPATIBLE_SCHEMA, toRequest: (value) => toCompatibleRequest(value, true) },
  responses: { schema: RESPONSES_SCHEMA, toRequest: toResponsesRequest },
  messages: { schema: MESSAGES_SCHEMA, toRequest: (value) => toMessagesRequest(value) },
  'messages-billed': { schema: MESSAGES_SCHEMA, toRequest: (value) => toMessagesRequest(value, true) },
};

/** Parses and checks the body of POST /chat/completions, under either contract, of POST /responses or of POST /messages. */
export function parseChat(bytes: Uint8Array, form: ChatForm = 'chat'): Parsed<ChatRequest> {
  const read = readJson(bytes, { replaceSurrogates: form !== 'chat' });
  if (form !== 'chat') {
    const { schema, toRequest } = WIDE_FORMS[form];
    return read.ok ? toRequest(read.value) : refuseJson(read, schema);
  }
  const parsed = read.ok ? toChatRequest(read.value) : refuseJson(read, CHAT_SCHEMA);
  if (parsed.kind === 'ok' || (!read.ok && read.fault !== 'lone-surrogate')) return parsed;
  // Only where it is true of the whole body.
  const compatible = read.ok ? toCompatibleRequest(read.value) : parseChat(bytes, 'compatible');
  return compatible.kind === 'ok' ? { ...parsed, error: acceptedElsewhere(parsed.error) } : parsed;
}

function acceptedElsewhere({ code, message, param }: ContractError): ContractError {
  const what = message.replace(/; its fields are .*$/, '');
  return contractError(code, `${what}; \`contract: compatible\` accepts it`, { param });
}

/** Parses and checks the body of POST /decisions or POST /systemone. */
export function parseDecisions(route: 'decisions' | 'systemone', bytes: Uint8Array): Parsed<DecisionRequest> {
  const read = readJson(bytes);
  if (!read.ok) return refuseJson(read, route === 'decisions' ? DECISIONS_SCHEMA : SYSTEMONE_SCHEMA);
  return route === 'decisions' ? toDecisionRequest(read.value) : toSystemOneRequest(read.value, read.text);
}
