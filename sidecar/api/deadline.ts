import type { Caller } from '../access/identity.js';
import type { RequestHead } from '../http/exchange.js';
import type { Services } from './services.js';

/** Whole milliseconds, a little over a day at most; 0: it is late already. */
const MILLISECONDS = /^(?:0|[1-9][0-9]{0,7})$/;

/**
 * How long a request may take from its body's last byte on, ms: what the operator allows, or what a gateway asks for in
 * `x-ra-deadline-ms` if that is shorter. Undefined: as long as it likes. From a caller that nobody vouches for the header
 * says nothing: whoever names a short deadline goes before others of its account.
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

/** Anything but whole milliseconds is taken for no wish at all: the header is a gateway's and not part of the contract. */
function askedFor(head: Pick<RequestHead, 'header'>): number | undefined {
  const value = head.header('x-ra-deadline-ms');
  return value !== undefined && MILLISECONDS.test(value) ? Number(value) : undefined;
}
