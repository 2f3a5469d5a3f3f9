import type { Caller } from '../access/identity.js';
import type { RequestHead } from '../http/exchange.js';
import type { Services } from './services.js';

/** Whole milliseconds, at most a little over a day; 0 has passed already. */
const MILLISECONDS = /^(?:0|[1-9][0-9]{0,7})$/;

/**
 * How long a request may take from its body's last byte on, ms: the operator's limit, or that of a gateway in
 * `x-ra-deadline-ms` if it is shorter. Undefined: no limit. The header counts only on requests that come through a gateway, since a
 * request with a short deadline goes before others of its account.
 */
export function timeAllowed(
  head: Pick<RequestHead, 'header'>,
  { vouched }: Pick<Caller, 'vouched'>,
  { timeoutMs }: Pick<Services['limits'], 'timeoutMs'>,
): number | undefined {
  const asked = vouched === true ? askedFor(head) : undefined;
  const allowed = timeoutMs > 0 ? timeoutMs : undefined;
  if (asked === undefined || allowed === undefined) return asked ?? allowed;
  return Math.min(asked, allowed);
}

/** Whether a gateway set a deadline for this request, which then goes before others of its account. */
export function namesDeadline(head: Pick<RequestHead, 'header'>, { vouched }: Pick<Caller, 'vouched'>): boolean {
  return vouched === true && askedFor(head) !== undefined;
}

/** Seconds, with or without a fraction, below 12 days. */
const SECONDS = /^[0-9]{1,6}(?:\.[0-9]{1,6})?$/;

/**
 * How long the caller's client waits for its answer, ms, from the header that OpenAI's clients send if a call has a timeout. It
 * is not checked and does not change the order: it only bounds the request's time in the queue. Undefined: there is no such
 * time, or it is less than a second, which the clients round to 0.
 */
export function clientTimeoutMs(head: Pick<RequestHead, 'header'>): number | undefined {
  const value = head.header('x-stainless-timeout');
  const ms = value !== undefined && SECONDS.test(value) ? Number(value) * 1000 : 0;
  return ms > 0 ? ms : undefined;
}

/** Anything but whole milliseconds is ignored: the header is a gateway's and not part of the contract. */
function askedFor(head: Pick<RequestHead, 'header'>): number | undefined {
  const value = head.header('x-ra-deadline-ms');
  return value !== undefined && MILLISECONDS.test(value) ? Number(value) : undefined;
}
