import type { Clock } from '../../lib/clock.js';
import type { UsageEvent } from './cloud-event.js';
import { reasonOf } from './reason.js';
import type { DeliverySink, SinkAnswer } from './sink.js';

/** CloudEvents 1.0, HTTP protocol binding, section 3.3: batched content mode with the JSON batch format. */
const BATCH_TYPE = 'application/cloudevents-batch+json';

/** Of an answer's body so much is read, and dropped, so that its connection can be used again; a longer one is cut. */
const MAX_ANSWER_BYTES = 16 * 1024;

/** A sink that names a longer time is asked again after this one, ms: usage must not wait on a slip of the hand. */
const MAX_RETRY_AFTER_MS = 600_000;

/** 4xx that say "not now". 428: a condition is asked for that is none of an event's. */
const NOT_NOW: ReadonlySet<number> = new Set([408, 425, 428, 429]);

/**
 * 4xx that are about the address, the credentials, a bill, the headers or the media type, or say who forbids it: no event is at fault, and dead letters would be all
 * that is left of the usage of a day on which someone mistyped a secret. They wait for an operator.
 */
const NOT_THE_EVENTS: ReadonlySet<number> = new Set([401, 402, 403, 404, 405, 406, 407, 410, 415, 421, 426, 431, 451]);

export interface HttpSinkOptions {
  readonly clock: Clock;
  /** Milliseconds since 1970, for a Retry-After that names a date. */
  readonly date: () => number;
  readonly url: string;
  /** The whole of one request, its answer included, ms. */
  readonly timeoutMs: number;
  /** Asked before each request, so that a secret can be changed while this runs. Absent: none is sent. */
  readonly secret?: () => Promise<string>;
}

/** Posts batches to one URL. It follows no redirect: usage and its secret go where the configuration says or nowhere. */
export class HttpSink implements DeliverySink {
  readonly #options: HttpSinkOptions;

  constructor(options: HttpSinkOptions) {
    this.#options = options;
  }

  async deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer> {
    const { clock, timeoutMs } = this.#options;
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

  /** Connections are Node's own, which closes those that nobody uses. */
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
    // Only a whole answer counts: one that was cut off may be a proxy's, and a batch sent twice does no harm.
    await drop(response);
    const { status } = response;
    if (response.ok) return { kind: 'accepted' };
    if (status >= 400 && status < 500 && !NOT_NOW.has(status) && !NOT_THE_EVENTS.has(status)) {
      return { kind: 'refused', status };
    }
    const retryAfterMs = retryAfter(response.headers.get('retry-after'), date());
    return { kind: 'later', why: `status ${status}`, ...(retryAfterMs !== undefined && { retryAfterMs }) };
  }
}

/** Reads a body to its end or to its bound. Rejects when it breaks off before either. */
async function drop({ body }: Response): Promise<void> {
  let bytes = 0;
  // Leaving the loop early cancels the body and with it the connection.
  for await (const chunk of (body ?? []) as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > MAX_ANSWER_BYTES) return;
  }
}

/** A Retry-After in seconds or as a date, in ms from `now` and within its bound; undefined: none that can be read. */
export function retryAfter(header: string | null, now: number): number | undefined {
  if (header === null) return undefined;
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - now;
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), MAX_RETRY_AFTER_MS);
}
