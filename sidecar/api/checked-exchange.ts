import { prepareAnswers, validateAnswer, type AnswerKind } from '../contracts/answer-schemas.js';
import { placeOf } from '../contracts/body-refusals.js';
import { errorBody, type ContractError } from '../domain/errors.js';
import type { EventStream, Exchange } from '../http/exchange.js';
import { jsonIn } from '../lib/json-in.js';
import type { Log } from '../telemetry/logger.js';
import { referencesOf } from './public-routes.js';
import type { Contract } from './route.js';

/** The schema of each route's successful answer, by method and path. Files and the description of the API have none. */
function kindsOf(contract: Contract): ReadonlyMap<string, AnswerKind> {
  return new Map(
    referencesOf({ contract, batch: true }).flatMap(({ method, path, answer }) =>
      answer === 'Content' || answer === 'OpenApi' ? [] : [[`${method.toUpperCase()} ${path}`, answer] as const],
    ),
  );
}

/** Maps in answers whose keys are chosen by the caller and are therefore left out of paths. */
const OPEN_MAPS: ReadonlySet<string> = new Set(['answers', 'probabilities', 'legend']);

/** The log event for an answer that violates its schema. */
export const BROKEN_ANSWER = 'answer breaks its schema';

/** The frame that ends a successful stream. */
const DONE = '[DONE]';

/** Receives an answer that breaks its schema: which schema, where in it, and how. Holds no content. */
type Report = (problem: string) => void;

/** With `development.validateAnswers`, every body and frame is checked against its schema, and each violation logged. Tests use it. */
export function checkAnswers(log: Log, contract: Contract): (exchange: Exchange) => Exchange {
  prepareAnswers();
  const kinds = kindsOf(contract);
  return (exchange) => {
    const { method, route, requestId } = exchange.head;
    // A model list in the form of the Messages API has no schema: `test/contract/messages.test.ts` has all of it.
    const isForeign = exchange.answerForm !== undefined && route?.startsWith('/v1/models') === true;
    const kind = isForeign ? undefined : kinds.get(`${method} ${route}`);
    return checkedExchange(exchange, kind, contract, (problem) =>
      log.forRequest(requestId).error(BROKEN_ANSWER, { reason: problem }),
    );
  };
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

/** `kind`: of its answer; undefined if that has no schema. */
function checkedExchange(inner: Exchange, kind: AnswerKind | undefined, contract: Contract, report: Report): Exchange {
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
      const kind = exchange.answerForm ? 'MessageEvent' : kindOf(text, contract);
      over ||= text === DONE || LAST_EVENT.test(text) || check(kind, text, report) === 'Error';
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
  if (frame.startsWith('{"type":"')) return 'ResponseEvent';
  if (frame.startsWith('{"error":')) return 'Error';
  // Quotes inside a text are escaped, so that no text can look like this.
  if (frame.includes('"choices":[]')) return contract === 'compatible' ? 'PricedUsageChunk' : 'UsageChunk';
  if (frame.includes(',"service_tier":"')) return 'TieredChunk';
  return frame.includes('}],"usage":{') ? 'CountedChunk' : 'ChatCompletionChunk';
}

/** Of the catalogue, and as it is written. */
function checkError(
  error: ContractError,
  { head, answerForm }: Pick<Exchange, 'head' | 'answerForm'>,
  report: Report,
): void {
  check('Error', errorBody(error), report);
  if (answerForm) check('MessageError', answerForm.errorText(error, head.requestId), report);
}

function check(kind: AnswerKind, text: string, report: Report): AnswerKind {
  const value = jsonIn(text);
  const outcome = validateAnswer(kind, value);
  if (value === undefined) report(`${kind}: is not JSON`);
  else if (!outcome.ok) report(`${kind}: ${placeOf(outcome.segments, OPEN_MAPS).subject} ${outcome.message}`);
  return kind;
}
