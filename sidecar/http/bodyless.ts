import type { Clock } from '../lib/clock.js';
import type { Field } from './cors.js';
import type { EndedStreams } from './ended-streams.js';
import { headBytes } from './fields.js';
import type { HttpResponse } from './uws.js';

/** How long a caller has to close its connection after `Connection: close`, ms; as long as uWS lets one idle. */
const LINGER_MS = 10_000;

export function isBodyless(status: number, length: number): boolean {
  return status === 204 || status === 304 || length === 0;
}

/**
 * Answers without a body (204, 304, to HEAD), and ends the connection with it. uWS has no call for such an answer that shows
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
  return closeLater(res, clock);
}

/**
 * Closes the connection of a response that stays open for uWS, after {@link LINGER_MS}; usually its caller, who was sent
 * `Connection: close`, has closed it long before. Returns what cancels that.
 */
export function closeLater(res: Pick<HttpResponse, 'close'>, clock: Clock): () => void {
  return clock.after(LINGER_MS, () => res.close());
}

/**
 * Whether an answer to HEAD may wait unread in uWS, which does not report it; its bytes are then counted with those that
 * finished streams of this address left.
 */
export function mayLeaveHeadUnread(ended: EndedStreams, address: string, fields: readonly Field[]): boolean {
  return ended.mayLeaveUnread(address, headBytes(fields));
}

/** Answers HEAD and keeps the connection, after {@link mayLeaveHeadUnread}. */
export function sendHead(res: Pick<HttpResponse, 'cork' | 'endWithoutBody'>, writeHead: () => void): void {
  res.cork(() => {
    writeHead();
    res.endWithoutBody();
  });
}

/** The fields of an answer that is sent without its body; 204 and 304 have no length. */
export function bodylessFields(status: number, fields: readonly Field[], length: number): readonly Field[] {
  return status === 204 || status === 304 ? fields : [...fields, ['Content-Length', `${length}`]];
}
