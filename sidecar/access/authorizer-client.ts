/** Calls of an HTTP authorizer: {@link AuthorizerClient} makes one, {@link Breaker} says whether one is made. */
import { Agent as HttpAgent, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Clock } from '../lib/clock.js';
import { jsonIn } from '../lib/json-in.js';

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

/** One lookup at an HTTP authorizer: bounded in time and size, without redirects. Keeps connections open. Its creator must close it. */
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
  const value = jsonIn(Buffer.concat(parts).toString('utf8'));
  return value === undefined ? { kind: 'failed', why: 'answer is not JSON' } : { kind: 'json', value };
}

/** Retry-After in whole seconds; dates, which need synchronized clocks, are ignored. */
function restMs(retryAfter: string | undefined): number {
  const seconds = /^[0-9]{1,6}$/.test(retryAfter ?? '') ? Number(retryAfter) : 0;
  return seconds === 0 ? REST_MS : Math.min(seconds * 1000, MAX_REST_MS);
}

export interface BreakerOptions {
  /** Failures in a row that open it. */
  readonly failures: number;
  /** How long it stays open, ms. */
  readonly openMs: number;
  /** The longest time of one call, ms: how long others wait for the trial at most. */
  readonly trialMs: number;
  /** It opened, from closed or half-open. `reason`: of the last failure. */
  readonly opened?: (reason: string, forMs: number) => void;
  /** The service works again. */
  readonly closed?: () => void;
}

/** Permission for one call. Exactly one of the three functions is called, once; further calls do nothing. */
export interface AllowedCall {
  readonly kind: 'allowed';
  succeeded(): void;
  /**
   * `reason`: a constant or an error's code. `cause`: the subject of the call, if it may be the cause of the failure: consecutive failures
   * of one cause count as one.
   */
  failed(reason: string, cause?: string): void;
  /** The service requested a pause of this length, ms. */
  overloaded(forMs: number): void;
}

export interface Blocked {
  readonly kind: 'blocked';
  /** Whether the service reported overload, or fails. */
  readonly why: 'failing' | 'overloaded';
  /** Time until the next call is allowed, ms: above 0. */
  readonly retryAfterMs: number;
}

export type BreakerState = 'closed' | 'open' | 'half-open';

/**
 * A circuit breaker: a failing service is not called for a while, so that callers get an answer at once and it can
 * recover.
 *
 *     closed ──`failures` in a row──> open ──openMs──> half-open ──success──> closed
 *       └──service is overloaded───────^                   └──failure, or overloaded──> open
 *
 * Half-open allows one trial call, and no second one until that has ended or should have ended. Results of calls from
 * before the breaker opened are ignored.
 */
export class Breaker {
  readonly #clock: Clock;
  readonly #options: BreakerOptions;
  /** In a row, while closed. */
  #failures = 0;
  /** The cause of the last counted failure. */
  #lastCause: string | undefined;
  /** Clock reading; undefined while closed. */
  #openUntil: number | undefined;
  #why: Blocked['why'] = 'failing';
  /** The latest time at which the trial ends, clock reading; undefined if none is in flight. */
  #trialUntil: number | undefined;
  /** Counts transitions: calls that were allowed in an earlier epoch are void. */
  #epoch = 0;

  constructor(clock: Clock, options: BreakerOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  get state(): BreakerState {
    if (this.#openUntil === undefined) return 'closed';
    return this.#clock.now() < this.#openUntil ? 'open' : 'half-open';
  }

  /** Permission for a call, or the time until the next one. */
  enter(): AllowedCall | Blocked {
    const retryAfterMs = this.blockedForMs;
    if (retryAfterMs > 0) return { kind: 'blocked', why: this.#why, retryAfterMs };
    if (this.#openUntil !== undefined) this.#trialUntil = this.#clock.now() + this.#options.trialMs;
    return this.#allow();
  }

  /** Time until a call is allowed, whole ms; 0: now. */
  get blockedForMs(): number {
    if (this.#openUntil === undefined) return 0;
    return Math.max(0, Math.ceil((this.#trialUntil ?? this.#openUntil) - this.#clock.now()));
  }

  #allow(): AllowedCall {
    let epoch: number | undefined = this.#epoch;
    const once = (then: () => void): void => {
      const counts = epoch === this.#epoch;
      epoch = undefined;
      if (counts) then();
    };
    return {
      kind: 'allowed',
      succeeded: () => once(() => this.#succeeded()),
      failed: (reason, cause) => once(() => this.#failed(reason, cause)),
      overloaded: (forMs) => once(() => this.#open('overloaded', 'overloaded', forMs)),
    };
  }

  #succeeded(): void {
    this.#begin();
    if (this.#openUntil === undefined) return;
    this.#openUntil = undefined;
    this.#trialUntil = undefined;
    this.#epoch += 1;
    this.#options.closed?.();
  }

  #failed(reason: string, cause?: string): void {
    const counts = cause === undefined || cause !== this.#lastCause;
    this.#lastCause = cause;
    if (counts) this.#failures += 1;
    if (this.#openUntil !== undefined || this.#failures >= this.#options.failures) {
      this.#open('failing', reason, this.#options.openMs);
    }
  }

  /** Resets the failure count. */
  #begin(): void {
    this.#failures = 0;
    this.#lastCause = undefined;
  }

  #open(why: Blocked['why'], reason: string, forMs: number): void {
    this.#why = why;
    this.#openUntil = this.#clock.now() + forMs;
    this.#trialUntil = undefined;
    this.#begin();
    this.#epoch += 1;
    this.#options.opened?.(reason, forMs);
  }
}
