import { EventEmitter, once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { metricsIn, spansIn, type ReceivedMetric, type ReceivedSpan } from './otlp-messages.js';

export interface OtlpRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** The server’s span, and its children in the order of their times. */
export interface ReceivedTrace {
  readonly server: ReceivedSpan;
  readonly parts: readonly ReceivedSpan[];
}

/** Longest wait for what is expected, ms: a test that waits so long has failed. */
const PATIENCE_MS = 30_000;

/** A real HTTP server that receives OTLP in protobuf, with the answers of its test. Closed with the test. */
export class OtlpReceiver {
  readonly requests: OtlpRequest[] = [];
  /** Answers a request, or does not. */
  answer: (response: ServerResponse, request: OtlpRequest) => void = (response) =>
    void response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
  readonly #server: Server;
  readonly #news = new EventEmitter().setMaxListeners(0);

  private constructor() {
    this.#server = createServer((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part: Buffer) => parts.push(part));
      request.on('end', () => {
        const taken = { path: request.url ?? '', headers: request.headers, body: Buffer.concat(parts) };
        this.requests.push(taken);
        this.answer(response, taken);
        this.#news.emit('request');
      });
    });
  }

  /** On a free port, or on one that a test found before. */
  static async start(t: Owner, port = 0): Promise<OtlpReceiver> {
    const receiver = new OtlpReceiver();
    await once(receiver.#server.listen(port, '127.0.0.1'), 'listening');
    t.teardown(() => receiver.close());
    return receiver;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get spans(): ReceivedSpan[] {
    return this.requests.filter(({ path }) => path === '/v1/traces').flatMap(({ body }) => spansIn(body));
  }

  /** Of the last export. */
  get metrics(): ReceivedMetric[] {
    const last = this.requests.filter(({ path }) => path === '/v1/metrics').at(-1);
    return last ? metricsIn(last.body) : [];
  }

  /** Everything received, as text in which every byte is one character. */
  get raw(): string[] {
    return this.requests.map(({ body }) => body.toString('latin1'));
  }

  /** Waits for the content of a request. */
  async until<T>(what: string, find: () => T | undefined): Promise<T> {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    for (;;) {
      const found = find();
      if (found !== undefined) return found;
      await once(this.#news, 'request', { signal }).catch(() => {
        throw new Error(`${what} did not come, among ${this.requests.length} requests`);
      });
    }
  }

  /** The trace whose server span has this id, received or yet to be received. */
  trace(spanId: string): Promise<ReceivedTrace> {
    return this.until(`span ${spanId}`, () => {
      const { spans } = this;
      const server = spans.find((span) => span.spanId === spanId);
      if (!server) return undefined;
      const parts = spans.filter(({ parentId }) => parentId === spanId);
      return { server, parts: parts.sort((a, b) => a.from - b.from || a.until - b.until) };
    });
  }

  /** Closes all connections. */
  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server.close(), 'close');
    this.#server.closeAllConnections();
    await closed;
  }
}
