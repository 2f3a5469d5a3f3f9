/** A line of a batch as a request: it has no socket and no key, and its answer is kept in place of being sent. */
import { randomUUID } from 'node:crypto';
import type { Caller } from '../access/identity.js';
import { errorBody, type ContractError } from '../domain/errors.js';
import type { TokenCounts } from '../domain/money.js';
import { Body, type BodyResult } from '../http/body.js';
import type { BodyPieces, EventStream, Exchange, Reply, RequestHead } from '../http/exchange.js';
import type { Signal } from '../lib/abort.js';

/** A run of a line that has ended well: its usage record's id, and what it is to cost. */
export interface BatchAttempt {
  readonly id: string;
  readonly used: TokenCounts;
  readonly picodollars: bigint;
}

/** What a request's machine (run.ts) needs to know of a line. */
export interface BatchItem {
  readonly caller: Caller;
  /** Tokens of each reply that are reserved before it runs; absent: as for any request. */
  readonly part?: number;
  /** Makes the answer durable, before its usage is closed. Resolves with false if it cannot be: then it costs nothing. */
  keep(attempt: BatchAttempt): Promise<boolean>;
  /** Its reply ended after `tokens`, since no more could be reserved: it costs nothing and is to run again. */
  cut(tokens: number): void;
}

export class ItemExchange implements Exchange {
  readonly head: RequestHead;
  readonly gone: Signal;
  readonly #body: Uint8Array;
  readonly #receivedAt: number;
  /** The body of the 200; undefined if there is none. */
  answer: string | undefined;
  error: ContractError | undefined;
  #pieces = '';

  /** `gone`: it is to stop. `receivedAt`: clock reading. */
  constructor(path: string, body: Uint8Array, gone: Signal, receivedAt: number) {
    this.head = {
      method: 'POST',
      path,
      query: '',
      route: path,
      requestId: randomUUID(),
      scheme: 'http',
      address: '',
      header: (name) => (name === 'content-type' ? 'application/json' : undefined),
    };
    this.gone = gone;
    this.#body = body;
    this.#receivedAt = receivedAt;
  }

  body(): Promise<BodyResult> {
    return Promise.resolve(new Body(this.#body, this.#body.length, this.#receivedAt));
  }

  receive(): Promise<never> {
    throw new Error('a line of a batch is not received');
  }

  reply({ body = '' }: Reply): void {
    this.answer = typeof body === 'string' ? body : Buffer.from(body).toString('utf8');
  }

  fail(error: ContractError): void {
    this.error = error;
  }

  file(): Promise<never> {
    throw new Error('a line of a batch has no file');
  }

  stream(): EventStream {
    throw new Error('a line of a batch does not stream');
  }

  pieces(): BodyPieces {
    return {
      write: (text) => (this.#pieces += text),
      drained: () => undefined,
      end: (text) => (this.answer ??= this.#pieces + text),
      abort: () => undefined,
    };
  }
}

/** A line of the file of answers. `body`: JSON. */
export function answerLine(customId: string, attempt: string, requestId: string, body: string): Buffer {
  return lineOf(
    customId,
    attempt,
    `{"status_code":200,"request_id":${JSON.stringify(requestId)},"body":${body}}`,
    'null',
  );
}

/** A line of the file of errors, for a request that was refused or failed. */
export function errorLine(customId: string, requestId: string, error: ContractError): Buffer {
  const response = `{"status_code":${error.status},"request_id":${JSON.stringify(requestId)},"body":${errorBody(error)}}`;
  return lineOf(customId, requestId, response, 'null');
}

/** The same for a line that did not run. */
export function unsentLine(customId: string): Buffer {
  const error = { code: 'batch_expired', message: 'The batch reached the end of its window before this request ran.' };
  return lineOf(customId, randomUUID(), 'null', JSON.stringify(error));
}

function lineOf(customId: string, id: string, response: string, error: string): Buffer {
  const name = JSON.stringify(`batch_req_${id.replaceAll('-', '')}`);
  return Buffer.from(
    `{"id":${name},"custom_id":${JSON.stringify(customId)},"response":${response},"error":${error}}\n`,
  );
}
