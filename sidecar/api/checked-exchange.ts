import { prepareAnswers, validateAnswer, type AnswerKind } from '../contracts/answer-schemas.js';
import { placeOf } from '../contracts/body-refusals.js';
import { errorBody, type ContractError } from '../domain/errors.js';
import type { BodyEnd, BodyResult, WholeBody } from '../http/body.js';
import type {
  AnswerForm,
  BodyPieces,
  EventStream,
  Exchange,
  FileBody,
  FrameOptions,
  Reply,
  RequestHead,
} from '../http/exchange.js';
import type { Signal } from '../lib/abort.js';
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
    new CheckedExchange(exchange, contract, (problem) =>
      log.forRequest(exchange.head.requestId).error(BROKEN_ANSWER, { reason: problem }),
    );
}

class CheckedExchange implements Exchange {
  readonly #inner: Exchange;
  readonly #contract: Contract;
  readonly #report: Report;

  constructor(inner: Exchange, contract: Contract, report: Report) {
    this.#inner = inner;
    this.#contract = contract;
    this.#report = report;
  }

  get head(): RequestHead {
    return this.#inner.head;
  }

  get answerForm(): AnswerForm | undefined {
    return this.#inner.answerForm;
  }

  get gone(): Signal {
    return this.#inner.gone;
  }

  body(limitBytes: number): Promise<BodyResult> {
    return this.#inner.body(limitBytes);
  }

  receive(limitBytes: number, after?: Promise<unknown>): Promise<Uint8Array | WholeBody | BodyEnd> {
    return this.#inner.receive(limitBytes, after);
  }

  file(file: FileBody): Promise<void> {
    return this.#inner.file(file);
  }

  reply(reply: Reply): void {
    const kind = kindAt(this.head, this.answerForm, this.#contract);
    if (kind !== undefined && typeof reply.body === 'string') check(kind, reply.body, this.#report);
    this.#inner.reply(reply);
  }

  fail(error: ContractError, headers?: Readonly<Record<string, string>>): void {
    checkError(error, this, this.#report);
    this.#inner.fail(error, headers);
  }

  stream(headers?: Readonly<Record<string, string>>, frames?: FrameOptions): EventStream {
    return new CheckedStream(this.#inner.stream(headers, frames), this, this.#contract, this.#report);
  }

  /** Collects the whole text, which a sidecar outside of development never does. */
  pieces(headers?: Readonly<Record<string, string>>): BodyPieces {
    const inner = this.#inner.pieces(headers);
    const kind = kindAt(this.head, this.answerForm, this.#contract);
    let text = '';
    return {
      write: (part) => {
        text += part;
        inner.write(part);
      },
      drained: () => inner.drained(),
      end: (part) => {
        if (kind !== undefined) check(kind, text + part, this.#report);
        inner.end(part);
      },
      abort: () => inner.abort(),
    };
  }
}

/** Chunks, then either `[DONE]` or one error frame, then nothing. */
class CheckedStream implements EventStream {
  readonly #inner: EventStream;
  readonly #exchange: Pick<Exchange, 'head' | 'answerForm'>;
  readonly #contract: Contract;
  readonly #report: Report;
  #over = false;

  constructor(inner: EventStream, exchange: Pick<Exchange, 'head' | 'answerForm'>, contract: Contract, report: Report) {
    this.#inner = inner;
    this.#exchange = exchange;
    this.#contract = contract;
    this.#report = report;
  }

  get bytes(): number {
    return this.#inner.bytes;
  }

  unread(): number {
    return this.#inner.unread();
  }

  event(text: string, name?: string): void {
    if (this.#over) this.#report('stream: a frame follows the last one');
    const kind = this.#exchange.answerForm ? 'messageEvent' : kindOf(text, this.#contract);
    this.#over ||= text === DONE || LAST_EVENT.test(text) || check(kind, text, this.#report) === 'error';
    this.#inner.event(text, name);
  }

  comment(text: string): void {
    this.#inner.comment(text);
  }

  fail(error: ContractError, serverTiming?: string): void {
    if (this.#over) this.#report('stream: a frame follows the last one');
    checkError(error, this.#exchange, this.#report);
    this.#over = true;
    this.#inner.fail(error, serverTiming);
  }

  end(serverTiming?: string): void {
    if (!this.#over) this.#report('stream: it ends without [DONE] or an error frame');
    this.#over = true;
    this.#inner.end(serverTiming);
  }
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
  const value = parsed(text);
  const outcome = value && validateAnswer(kind, value.json);
  if (outcome === undefined) report(`${kind}: is not JSON`);
  else if (!outcome.ok) report(`${kind}: ${placeOf(outcome.segments, OPEN_MAPS).subject} ${outcome.message}`);
  return kind;
}

function parsed(text: string): { readonly json: unknown } | undefined {
  try {
    return { json: JSON.parse(text) as unknown };
  } catch {
    return undefined;
  }
}
