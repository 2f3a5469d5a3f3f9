import type { Clock } from '../../lib/clock.js';
import { reasonOf, type DeliverySink, type SinkAnswer, type UsageEvent } from './sink.js';

/** CloudEvents 1.0, HTTP protocol binding, section 3.3: batched content mode with the JSON batch format. */
const BATCH_TYPE = 'application/cloudevents-batch+json';

/** Bytes of a response body that are read and discarded, so that its connection can be reused; a longer one closes it. */
const MAX_ANSWER_BYTES = 16 * 1024;

/** The longest Retry-After that is followed, ms. */
const MAX_RETRY_AFTER_MS = 600_000;

/** 4xx statuses that are temporary. 428: a precondition that no event can meet. */
const NOT_NOW: ReadonlySet<number> = new Set([408, 425, 428, 429]);

/**
 * 4xx statuses about the address, the credentials, payment, the headers or the media type, or by an intermediary: the events are not the
 * cause. They are retried until an operator fixes it; otherwise a mistyped secret would turn a day's usage into dead letters.
 */
const NOT_THE_EVENTS: ReadonlySet<number> = new Set([401, 402, 403, 404, 405, 406, 407, 410, 415, 421, 426, 431, 451]);

export interface HttpSinkOptions {
  readonly clock: Clock;
  /** Milliseconds since 1970, for a Retry-After that names a date. */
  readonly date: () => number;
  readonly url: string;
  /** Time limit of one request, its response included, ms. */
  readonly timeoutMs: number;
  /** Called before each request, so that a secret can be changed at run time. Absent: none is sent. */
  readonly secret?: () => Promise<string>;
}

/** Posts batches to one URL. It follows no redirects, so that usage and its secret are sent only to the configured URL. */
export class HttpSink implements DeliverySink {
  readonly #options: HttpSinkOptions;

  constructor(options: HttpSinkOptions) {
    this.#options = options;
  }

  async deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer> {
    const { clock, timeoutMs } = this.#options;
    // AbortSignal.any() would leak memory for each batch, since `signal` lives as long as the delivery.
    const ended = new AbortController();
    const cancel = clock.after(timeoutMs, () => ended.abort(new DOMException('no answer in time', 'TimeoutError')));
    const stop = (): void => ended.abort();
    signal.addEventListener('abort', stop);
    if (signal.aborted) stop();
    try {
      return await this.#post(JSON.stringify(batch), ended.signal);
    } catch (error) {
      return { kind: 'later', why: reasonOf(error) };
    } finally {
      cancel();
      signal.removeEventListener('abort', stop);
    }
  }

  /** Node closes its idle connections itself. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  async #post(body: string, signal: AbortSignal): Promise<SinkAnswer> {
    const { url, secret, date } = this.#options;
    const authorization = secret && `Bearer ${await secret()}`;
    const response = await fetch(url, {
      method: 'POST',
      body,
      signal,
      redirect: 'manual',
      headers: { 'content-type': BATCH_TYPE, ...(authorization !== undefined && { authorization }) },
    });
    // Only a complete response counts: an incomplete one may come from a proxy, and a repeated batch does no harm.
    await discard(response);
    const { status } = response;
    if (response.ok) return { kind: 'accepted' };
    if (status >= 400 && status < 500 && !NOT_NOW.has(status) && !NOT_THE_EVENTS.has(status)) {
      return { kind: 'refused', status };
    }
    const retryAfterMs = retryAfter(response.headers.get('retry-after'), date());
    return { kind: 'later', why: `status ${status}`, ...(retryAfterMs !== undefined && { retryAfterMs }) };
  }
}

/** Reads a body to its end or to its bound. Rejects if it ends early. */
async function discard({ body }: Response): Promise<void> {
  let bytes = 0;
  // Leaving the loop early cancels the body and closes the connection.
  for await (const chunk of (body ?? []) as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > MAX_ANSWER_BYTES) return;
  }
}

/** A Retry-After in seconds or as a date, in ms from `now` and within its bound; undefined if it is missing or invalid. */
export function retryAfter(header: string | null, now: number): number | undefined {
  if (header === null) return undefined;
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - now;
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), MAX_RETRY_AFTER_MS);
}
