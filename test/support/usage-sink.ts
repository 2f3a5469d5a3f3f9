import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { freePort } from './free-port.js';

export interface SinkRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
  readonly response: ServerResponse;
}

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** A real HTTP server that receives usage, with the answers of its test. Closed with the test. */
export class UsageSink {
  readonly requests: SinkRequest[] = [];
  /** Answers a request, or does not. */
  answer: (request: SinkRequest) => void = ({ response }) => void response.writeHead(204).end();
  readonly #server: Server;
  readonly #waiting: { readonly count: number; readonly resolve: () => void }[] = [];

  private constructor() {
    this.#server = createServer((request, response) => {
      void this.#take(request, response);
    });
  }

  /** On a free port, or on one that a test found before. */
  static async start(t: Owner, port = 0): Promise<UsageSink> {
    const sink = new UsageSink();
    await once(sink.#server.listen(port, '127.0.0.1'), 'listening');
    t.teardown(() => sink.close());
    return sink;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/usage`;
  }

  /** Ids of the events of each request. */
  get ids(): string[][] {
    return this.requests.map(({ body }) => (JSON.parse(body) as { id: string }[]).map(({ id }) => id));
  }

  /** Resolves once so many requests have arrived in all. */
  came(count: number): Promise<void> {
    return new Promise((resolve) => {
      if (this.requests.length >= count) resolve();
      else this.#waiting.push({ count, resolve });
    });
  }

  /** Closes all connections. */
  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server.close(), 'close');
    this.#server.closeAllConnections();
    await closed;
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = '', url: path = '', headers } = request;
    const taken = { method, path, headers, body: Buffer.concat(chunks).toString(), response };
    this.requests.push(taken);
    this.answer(taken);
    for (const { count, resolve } of this.#waiting) if (this.requests.length >= count) resolve();
  }
}

/** A port of this machine without a listener. */
export const deadPort = freePort;
