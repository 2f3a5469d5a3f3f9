import type { Clock } from '../../lib/clock.js';

/**
 * Calls `work` with a signal that is aborted after `timeoutMs` and when `signal` is. AbortSignal.any() is not used, since it would
 * leak memory for each batch if `signal` lives long.
 */
export async function withTimeLimit<T>(
  clock: Clock,
  timeoutMs: number,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const ended = new AbortController();
  const cancel = clock.after(timeoutMs, () => ended.abort(new DOMException('no answer in time', 'TimeoutError')));
  const stop = (): void => ended.abort();
  signal.addEventListener('abort', stop);
  if (signal.aborted) stop();
  try {
    return await work(ended.signal);
  } finally {
    cancel();
    signal.removeEventListener('abort', stop);
  }
}
