/** HTTP to one server of a model: bounded in time and size, over connections that are kept. Never throws. */
import {
  Agent,
  request as httpRequest,
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
} from 'node:http';
import { Agent as TlsAgent, request as httpsRequest } from 'node:https';
import type { RemoteSetup } from '../protocol/setup.js';

/** The longest answer that is no stream: the metrics of some hundred data-parallel ranks are a few megabytes. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

/** What the operating system says where no process listens. */
const ABSENT: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ENOENT', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH']);

export interface ServerAddress extends Pick<RemoteSetup, 'url' | 'socket'> {
  /** Sent as a bearer token. */
  readonly key?: string | undefined;
}

export type ServerAnswer =
  | { readonly kind: 'json'; readonly value: unknown }
  | { readonly kind: 'text'; readonly text: string }
  /** Any other status than 200. */
  | { readonly kind: 'status'; readonly status: number }
  /** No process answers there. `why`: the operating system's code. */
  | { readonly kind: 'absent'; readonly why: string }
  /** `why`: a constant or the operating system's code. */
  | { readonly kind: 'failed'; readonly why: string };

/** How a stream ended, exactly once unless it was closed. */
export type StreamEnd =
  | { readonly kind: 'ended' }
  | { readonly kind: 'status'; readonly status: number }
  /** It could not be connected, or the connection ended before the answer did. */
  | { readonly kind: 'broken'; readonly why: string };

export interface StreamEvents {
  data(bytes: Uint8Array): void;
  end(how: StreamEnd): void;
}

/** One request whose answer is streamed. */
export interface OpenStream {
  /** Closes its connection; no event follows. Idempotent. */
  close(): void;
}

/** Keeps connections open between requests until the process ends. */
export class ServerClient {
  readonly #setup: ServerAddress;
  readonly #agent: Agent;
  readonly #request: typeof httpRequest;

  constructor(setup: ServerAddress) {
    this.#setup = setup;
    const tls = setup.url.startsWith('https:');
    this.#agent = new (tls ? TlsAgent : Agent)({ keepAlive: true });
    this.#request = tls ? httpsRequest : httpRequest;
  }

  /** Settles after `timeoutMs` at the latest. `signal`: closes its connection. */
  ask(
    method: 'GET' | 'POST',
    path: string,
    timeoutMs: number,
    body?: object,
    signal?: AbortSignal,
  ): Promise<ServerAnswer> {
    return new Promise((resolve) => {
      const chunks: Buffer[] = [];
      let size = 0;
      let over = false;
      const end = (answer: ServerAnswer): void => {
        if (over) return;
        over = true;
        clearTimeout(timer);
        signal?.removeEventListener('abort', abort);
        if (answer.kind === 'failed') sent.destroy();
        resolve(answer);
      };
      const abort = (): void => end({ kind: 'failed', why: 'aborted' });
      const timer = setTimeout(() => end({ kind: 'failed', why: 'timeout' }), timeoutMs);
      signal?.addEventListener('abort', abort);
      const read = (response: IncomingMessage): void => {
        response.on('error', (error) => end({ kind: 'failed', why: codeOf(error) }));
        response.on('data', (chunk: Buffer) => {
          size += chunk.length;
          if (size > MAX_ANSWER_BYTES) end({ kind: 'failed', why: 'too long' });
          else chunks.push(chunk);
        });
        response.on('end', () => end(answerOf(response, Buffer.concat(chunks))));
        response.on('close', () => end({ kind: 'failed', why: 'closed' }));
      };
      const error = (fault: Error): void => {
        const why = codeOf(fault);
        end({ kind: ABSENT.has(why) ? 'absent' : 'failed', why });
      };
      const sent = this.#send(method, path, body, { response: read, error });
    });
  }

  /** POSTs `body`; the answer's bytes come as they arrive. */
  stream(path: string, body: object, events: StreamEvents): OpenStream {
    let over = false;
    const end = (how: StreamEnd): void => {
      if (over) return;
      over = true;
      sent.destroy();
      events.end(how);
    };
    const error = (fault: Error): void => end({ kind: 'broken', why: codeOf(fault) });
    const read = (response: IncomingMessage): void => {
      response.on('error', error);
      response.on('close', () => end({ kind: 'broken', why: 'closed' }));
      if (response.statusCode !== 200) {
        // Its text may quote the prompt, or never end.
        end({ kind: 'status', status: response.statusCode ?? 0 });
        return;
      }
      response.on('data', (chunk: Buffer) => {
        if (!over) events.data(chunk);
      });
      response.on('end', () => {
        if (over) return;
        over = true;
        events.end({ kind: 'ended' });
      });
    };
    const sent = this.#send('POST', path, body, { response: read, error });
    return {
      close: () => {
        over = true;
        sent.destroy();
      },
    };
  }

  #send(
    method: string,
    path: string,
    body: object | undefined,
    on: { readonly response: (response: IncomingMessage) => void; readonly error: (error: Error) => void },
  ): { readonly destroy: () => void } {
    const { url, socket, key } = this.#setup;
    const payload = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const options: RequestOptions = {
      method,
      headers: {
        ...(payload && { 'content-type': 'application/json', 'content-length': payload.length }),
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
      },
      ...(socket !== undefined && { socketPath: socket }),
    };
    let closed = false;
    const attempt = (agent: Agent | false): ClientRequest => {
      let answered = false;
      const sent = this.#request(`${url}${path}`, { ...options, agent }, (response) => {
        answered = true;
        on.response(response);
      });
      sent.on('error', (error) => {
        if (closed) return;
        // The server had closed a kept connection, as it may at any time.
        if (sent.reusedSocket && !answered) current = attempt(false);
        else on.error(error);
      });
      return sent.end(payload);
    };
    let current = attempt(this.#agent);
    return {
      destroy: () => {
        closed = true;
        current.destroy();
      },
    };
  }
}

function codeOf(error: Error): string {
  return (error as NodeJS.ErrnoException).code ?? 'unknown';
}

function answerOf(response: IncomingMessage, body: Buffer): ServerAnswer {
  const { statusCode = 0, complete } = response;
  if (!complete) return { kind: 'failed', why: 'cut short' };
  if (statusCode !== 200) return { kind: 'status', status: statusCode };
  const text = body.toString();
  if (!(response.headers['content-type'] ?? '').includes('json')) return { kind: 'text', text };
  try {
    return { kind: 'json', value: JSON.parse(text) as unknown };
  } catch {
    return { kind: 'failed', why: 'no JSON' };
  }
}
