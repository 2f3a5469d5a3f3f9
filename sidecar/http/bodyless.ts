import type { Clock } from '../lib/clock.js';
import type { HttpResponse } from './uws.js';

/** How long a caller has to close its connection after `Connection: close`, ms; as long as uWS lets one idle. */
const LINGER_MS = 10_000;

export function isBodyless(status: number, length: number): boolean {
  return status === 204 || status === 304 || length === 0;
}

/**
 * Answers without a body, and ends the connection with it. uWS has no call for such an answer that shows
 * whether the socket took it, so on a kept connection any number of them could wait for a caller who does not read. Here
 * the response stays open for uWS, which closes the connection if another request comes. Otherwise the caller closes it,
 * or the sidecar after {@link LINGER_MS}. Returns what cancels that, for when the caller disconnected.
 */
export function sendBodyless(
  res: Pick<HttpResponse, 'cork' | 'writeHeader' | 'close'>,
  clock: Clock,
  writeHead: () => void,
): () => void {
  res.cork(() => {
    writeHead();
    res.writeHeader('Connection', 'close');
    // Its second line break ends the head.
    res.writeHeader('Date', `${new Date().toUTCString()}\r\n`);
  });
  return clock.after(LINGER_MS, () => res.close());
}
