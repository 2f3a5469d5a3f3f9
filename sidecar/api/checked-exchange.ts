import { prepareAnswers, validateAnswer, type AnswerKind } from '../contracts/answer-schemas.js';
import { placeOf } from '../contracts/body-refusals.js';
import { errorBody, type ContractError } from '../domain/errors.js';
import type { AnswerForm, EventStream, Exchange, RequestHead } from '../http/exchange.js';
import { jsonIn } from '../lib/json-in.js';
import type { Log } from '../telemetry/logger.js';
import type { Contract } from './route.js';

/** The schema of each path's successful answer. Paths that are not listed do not answer with JSON of the contract. */
const ANSWERS: ReadonlyMap<string, AnswerKind> = new Map([
  ['/v1/chat/completions', 'completion'],
  ['/v1/responses', 'response'],
  ['/v1/messages', 'message'],
  ['/v1/messages/count_tokens', 'tokenCount'],
  ['/v1/models', 'models'],
  ['/v1/usage', 'usagePage'],
  ['/v1/account', 'account'],
  ['/v1/decisions', 'decisions'],
  ['/v1/systemone', 'systemone'],
  ['/v1/embeddings', 'embeddings'],
  ['/v1/rerank', 'rerank'],
  ['/healthz', 'health'],
  ['/health', 'healthState'],
  ['/readyz', 'readiness'],
]);

/** Where `contract: compatible` has another schema. */
const COMPATIBLE_ANSWERS: typeof ANSWERS = new Map([
  ['/v1/chat/completions', 'pricedCompletion'],
  ['/v1/models', 'describedModels'],
]);

/** Of paths that take several methods, by method and route. */
const METHOD_ANSWERS: ReadonlyMap<string, AnswerKind> = new Map([
  ['POST /v1/files', 'file'],
  ['GET /v1/files', 'fileList'],
  ['GET /v1/files/{id}', 'file'],
  ['DELETE /v1/files/{id}', 'fileDeleted'],
  ['POST /v1/batches', 'batch'],
  ['GET /v1/batches', 'batchList'],
  ['GET /v1/batches/{id}', 'batch'],
  ['POST /v1/batches/{id}/cancel', 'batch'],
]);

/** A model list in the form of the Messages API has no schema: `test/contract/messages.test.ts` has all of it. */
function kindAt(
  { path, method, route }: RequestHead,
  form: AnswerForm | undefined,
  contract: Contract,
): AnswerKind | undefined {
  if (form && path.startsWith('/v1/models')) return undefined;
  if (path.startsWith('/v1/models/')) return 'describedModel';
  const ofMethod = METHOD_ANSWERS.get(`${method} ${route}`);
  if (ofMethod !== undefined) return ofMethod;
  return (contract === 'compatible' ? COMPATIBLE_ANSWERS.get(path) : undefined) ?? ANSWERS.get(path);
}

/** Maps in answers whose keys are chosen by the caller and are therefore left out of paths. */
const OPEN_MAPS: ReadonlySet<string> = new Set(['answers', 'probabilities', 'legend']);

/** The log event for an answer that violates its schema. */
export const BROKEN_ANSWER = 'answer breaks its schema';

/** The frame that ends a successful stream. */
const DONE = '[DONE]';

/** Receives an answer that breaks its schema: which schema, where in it, and how. Holds no content. */
type Report = (problem: string) => void;

/**
 * With `development.validateAnswers`, every body and every frame is validated against its schema, and each violation is logged.
 * The caller's answer does not change. Tests run with it and fail when a violation was logged.
 */
export function checkAnswers(log: Log, contract: Contract): (exchange: Exchange) => Exchange {
  prepareAnswers();
  return (exchange) =>
    checkedExchange(exchange, contract, (problem) =>
      log.forRequest(exchange.head.requestId).error(BROKEN_ANSWER, { reason: problem }),
    );
}

/** The same object, but for these members. */
function withMembers<T extends object>(inner: T, own: Partial<T>): T {
  return new Proxy(inner, {
    get: (_, name): unknown => {
      const value: unknown = Reflect.get(Object.hasOwn(own, name) ? own : inner, name);
      return typeof value === 'function' ? (value.bind(inner) as unknown) : value;
    },
  });
}

function checkedExchange(inner: Exchange, contract: Contract, report: Report): Exchange {
  const kind = kindAt(inner.head, inner.answerForm, contract);
  return withMembers(inner, {
    reply: (reply) => {
      if (kind !== undefined && typeof reply.body === 'string') check(kind, reply.body, report);
      inner.reply(reply);
    },
    fail: (error, headers) => {
      checkError(error, inner, report);
      inner.fail(error, headers);
    },
    stream: (headers, frames) => checkedStream(inner.stream(headers, frames), inner, contract, report),
    // Collects the whole text, which a sidecar outside of development never does.
    pieces: (headers) => {
      const pieces = inner.pieces(headers);
      let text = '';
      return withMembers(pieces, {
        write: (part) => {
          text += part;
          pieces.write(part);
        },
        end: (part) => {
          if (kind !== undefined) check(kind, text + part, report);
          pieces.end(part);
        },
      });
    },
  });
}

/** Chunks, then either `[DONE]` or one error frame, then nothing. */
function checkedStream(
  inner: EventStream,
  exchange: Pick<Exchange, 'head' | 'answerForm'>,
  contract: Contract,
  report: Report,
): EventStream {
  let over = false;
  return withMembers(inner, {
    event: (text, name) => {
      if (over) report('stream: a frame follows the last one');
      const kind = exchange.answerForm ? 'messageEvent' : kindOf(text, contract);
      over ||= text === DONE || LAST_EVENT.test(text) || check(kind, text, report) === 'error';
      inner.event(text, name);
    },
    fail: (error, serverTiming) => {
      if (over) report('stream: a frame follows the last one');
      checkError(error, exchange, report);
      over = true;
      inner.fail(error, serverTiming);
    },
    end: (serverTiming) => {
      if (!over) report('stream: it ends without [DONE] or an error frame');
      over = true;
      inner.end(serverTiming);
    },
  });
}

/** The events that end a stream of POST /v1/responses, and of POST /v1/messages. */
const LAST_EVENT = /^\{"type":"(?:response\.(?:completed|incomplete)|message_stop)"/;

function kindOf(frame: string, contract: Contract): AnswerKind {
  if (frame.startsWith('{"type":"')) return 'responseEvent';
  if (frame.startsWith('{"error":')) return 'error';
  // Quotes inside a text are escaped, so that no text can look like this.
  if (frame.includes('"choices":[]')) return contract === 'compatible' ? 'pricedUsageChunk' : 'usageChunk';
  if (frame.includes(',"service_tier":"')) return 'tieredChunk';
  return frame.includes('}],"usage":{') ? 'countedChunk' : 'chunk';
}

/** Of the catalogue, and as it is written. */
function checkError(
  error: ContractError,
  { head, answerForm }: Pick<Exchange, 'head' | 'answerForm'>,
  report: Report,
): void {
  check('error', errorBody(error), report);
  if (answerForm) check('messageError', answerForm.errorText(error, head.requestId), report);
}

function check(kind: AnswerKind, text: string, report: Report): AnswerKind {
  const value = jsonIn(text);
  const outcome = validateAnswer(kind, value);
  if (value === undefined) report(`${kind}: is not JSON`);
  else if (!outcome.ok) report(`${kind}: ${placeOf(outcome.segments, OPEN_MAPS).subject} ${outcome.message}`);
  return kind;
}
