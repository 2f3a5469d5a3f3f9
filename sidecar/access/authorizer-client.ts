/** One lookup at an HTTP authorizer: bounded in time and size, without redirects. Never throws. */
import { Agent as HttpAgent, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Clock } from '../lib/clock.js';

/** Room for 256 model ids of 128 characters; a longer answer is an error. */
const MAX_ANSWER_BYTES = 64 * 1024;

/** The longest wait that an overloaded authorizer may request, and the wait if it names none, ms. */
const MAX_REST_MS = 60_000;
const REST_MS = 1000;

export interface AuthorizerClientOptions {
  readonly url: string;
  /** Unix socket to connect to in place of the URL's host. */
  readonly socket?: string;
  /** From the request to the complete answer, ms. */
  readonly timeoutMs: number;
  /** Connections at once; one lookup needs one. */
  readonly connections: number;
  /** The sidecar's own secret, if required; read at each lookup, so that it can be rotated. */
  readonly secret?: () => string;
}

export type Reply =
  /** 200 with JSON of any content. */
  | { readonly kind: 'json'; readonly value: unknown }
  /** It answered 429 or 503. */
  | { readonly kind: 'overloaded'; readonly retryAfterMs: number }
  /** `why`: a constant or an error code of Node's. */
  | { readonly kind: 'failed'; readonly why: string };

/** Keeps connections open between lookups. The code that makes it closes it. */
export class AuthorizerClient {
  readonly #clock: Clock;
  readonly #options: AuthorizerClientOptions;
  readonly #agent: HttpAgent;

  constructor(clock: Clock, options: AuthorizerClientOptions) {
    this.#clock = clock;
    this.#options = options;
    const Agent = options.url.startsWith('https:') ? HttpsAgent : HttpAgent;
    this.#agent = new Agent({ keepAlive: true, maxSockets: options.connections });
  }

  /** POSTs `question` as JSON, with `headers` besides its own. Never rejects. */
  ask(question: object, headers: Readonly<Record<string, string>> = {}): Promise<Reply> {
    const body = JSON.stringify(question);
    return new Promise((resolve) => {
      let ended = false;
      let request: ClientRequest | undefined;
      const end = (reply: Reply): void => {
        if (ended) return;
        ended = true;
        cancelTimer();
        // After a completely read answer the connection is reused; otherwise it is destroyed.
        if (reply.kind !== 'json') request?.destroy();
        resolve(reply);
      };
      const cancelTimer = this.#clock.after(this.#options.timeoutMs, () => end({ kind: 'failed', why: 'timeout' }));
      const send = (agent: HttpAgent | false): void => {
        const sent = this.#request(agent, Buffer.byteLength(body), headers);
        request = sent;
        sent.on('error', ({ code = 'connection' }: NodeJS.ErrnoException) => {
          // The server closed the idle connection before the request was sent: try once more on a new one.
          if (agent !== false && sent.reusedSocket && code === 'ECONNRESET' && !ended) send(false);
          else end({ kind: 'failed', why: code });
        });
        sent.on('response', (response) => void read(response).then(end));
        sent.end(body);
      };
      send(this.#agent);
    });
  }

  #request(agent: HttpAgent | false, bytes: number, headers: Readonly<Record<string, string>>): ClientRequest {
    const { url, socket, secret } = this.#options;
    return (url.startsWith('https:') ? httpsRequest : httpRequest)(url, {
      method: 'POST',
      agent,
      ...(socket !== undefined && { socketPath: socket }),
      headers: {
        ...headers,
        'content-type': 'application/json',
        'content-length': bytes,
        accept: 'application/json',
        ...(secret && { authorization: `Bearer ${secret()}` }),
      },
    });
  }

  /** Closes all connections. Lookups in flight fail. Idempotent. */
  close(): void {
    this.#agent.destroy();
  }
}

/** Interprets a response. Never rejects. */
async function read(response: IncomingMessage): Promise<Reply> {
  const { statusCode = 0, headers } = response;
  const retryAfter = headers['retry-after'];
  if (statusCode === 429 || (statusCode === 503 && retryAfter !== undefined)) {
    return { kind: 'overloaded', retryAfterMs: restMs(retryAfter) };
  }
  // Redirects are failures too: the request contains a credential and must go only to the configured URL.
  if (statusCode !== 200) return { kind: 'failed', why: `status ${statusCode}` };
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of response as AsyncIterable<Buffer>) {
      bytes += part.length;
      if (bytes > MAX_ANSWER_BYTES) return { kind: 'failed', why: 'answer too long' };
      parts.push(part);
    }
  } catch {
    return { kind: 'failed', why: 'answer incomplete' };
  }
  try {
    return { kind: 'json', value: JSON.parse(Buffer.concat(parts).toString('utf8')) as unknown };
  } catch {
    return { kind: 'failed', why: 'answer is not JSON' };
  }
}

/** Retry-After in whole seconds; dates, which need synchronized clocks, are ignored. */
function restMs(retryAfter: string | undefined): number {
  const seconds = /^[0-9]{1,6}$/.test(retryAfter ?? '') ? Number(retryAfter) : 0;
  return seconds === 0 ? REST_MS : Math.min(seconds * 1000, MAX_REST_MS);
}
