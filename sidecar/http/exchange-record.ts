import type { ErrorCode } from '../domain/errors.js';
import type { RequestHead } from './exchange.js';
import type { ServerContext } from './server-context.js';

/** What is reported of one exchange when it ends. */
export class ExchangeRecord {
  readonly #head: RequestHead;
  readonly #server: ServerContext;
  /** Clock reading. */
  readonly arrivedAt: number;
  /** Of the answer; 499 until there is one. */
  status = 499;
  /** Of an error that was answered as a whole. */
  code: ErrorCode | undefined;

  constructor(head: RequestHead, server: ServerContext) {
    this.#head = head;
    this.#server = server;
    this.arrivedAt = server.clock.now();
  }

  /** Reports it. `failure`: the code of a stream's error frame. */
  end(
    outcome: 'complete' | 'gone',
    sizes: {
      readonly requestBytes: number;
      readonly responseBytes: number;
      readonly failure: ErrorCode | undefined;
    },
  ): void {
    const { requestBytes, responseBytes, failure } = sizes;
    const { requestId, method, scheme, route } = this.#head;
    const code = failure ?? this.code;
    this.#server.onExchangeEnd?.({
      requestId,
      method,
      scheme,
      route,
      status: this.status,
      requestBytes,
      responseBytes,
      durationMs: this.#server.clock.now() - this.arrivedAt,
      outcome,
      ...(code !== undefined && { code }),
    });
  }
}
