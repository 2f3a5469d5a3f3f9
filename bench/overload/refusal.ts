import type { IncomingHttpHeaders } from 'node:http';

/** The content of a refusal. */
export interface Refusal {
  /** The code of its error; undefined: it has none, as those of a proxy. */
  readonly code?: string;
  /** When to retry; undefined: it has no time. */
  readonly retryAfterMs?: number;
  /** Whether its request had a place to wait in before it was refused; `untold`: unknown. */
  readonly came: 'at once' | 'after a wait' | 'untold';
}

/** Longest body of a refusal that is kept, characters; the rest is ignored. */
export const MAX_REFUSAL = 16_384;

/** By the answer’s content, never by its duration. */
export function refusalOf(headers: IncomingHttpHeaders, body: string): Refusal {
  const { code, message } = errorOf(body);
  const retryAfterMs = Number(headers['retry-after-ms'] ?? Number(headers['retry-after']) * 1000);
  return {
    ...(code !== undefined && { code }),
    ...(Number.isFinite(retryAfterMs) && { retryAfterMs }),
    came: cameAt(headers['server-timing'], message ?? body),
  };
}

/** A refusal without a place in the queue has an `ra-queue` of 0; any other has a larger one. */
function cameAt(timing: string | string[] | undefined, text: string): Refusal['came'] {
  const queueMs = /\bra-queue;dur=([\d.]+)/.exec(String(timing))?.[1];
  if (queueMs !== undefined) return Number(queueMs) === 0 ? 'at once' : 'after a wait';
  // Only 429s of the sidecar have their times; of its others this one has waited.
  if (text.includes('while it waited for a seat')) return 'after a wait';
  // nginx’ own page: limit_conn has no queue to wait in.
  return /<h1>429 .*<center>nginx/s.test(text) ? 'at once' : 'untold';
}

function errorOf(body: string): { readonly code?: string; readonly message?: string } {
  try {
    return (JSON.parse(body) as { error?: { code?: string; message?: string } }).error ?? {};
  } catch {
    return {};
  }
}
