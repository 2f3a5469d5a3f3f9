import { randomUUID } from 'node:crypto';
import type { RequestHead } from './exchange.js';
import type { HttpRequest } from './uws.js';

/** A request's head and the framing of its body. */
export interface Snapshot {
  readonly head: RequestHead;
  /** Content-Length, or 0 if there is no body to read, or parsers may differ about where it ends; chunked: unknown until it ends. */
  readonly bodyLength: number | 'chunked';
  /**
   * Set if parsers could read this head differently, so that a proxy may have seen another request: answer 400 and close the connection.
   * Describes the reason without values.
   */
  readonly refusal?: string;
}

const REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;

/** 15 digits are below Number.MAX_SAFE_INTEGER. */
const CONTENT_LENGTH = /^[0-9]{1,15}$/;

/** Fields that frame the body or identify the caller, which must not be repeated. The same holds for all `x-ra-` fields. */
const SINGLE: ReadonlySet<string> = new Set([
  'authorization',
  'content-length',
  'content-type',
  'host',
  'idempotency-key',
  'transfer-encoding',
  'x-api-key',
]);

/** Of these, the ones that say where the body ends. */
const FRAMES: ReadonlySet<string> = new Set(['content-length', 'transfer-encoding']);

function headOf(req: Request, connection: Connection, fields: ReadonlyMap<string, string>): RequestHead {
  const method = req.getCaseSensitiveMethod();
  const given = fields.get('x-request-id');
  return {
    method,
    path: req.getUrl(),
    query: method === 'GET' ? req.getQuery() : '',
    route: connection.route,
    requestId: given !== undefined && REQUEST_ID.test(given) ? given : randomUUID(),
    address: connection.address,
    scheme: connection.scheme,
    header: (name) => fields.get(name),
  };
}

/** What is read of uWS's request. */
type Request = Pick<HttpRequest, 'getCaseSensitiveMethod' | 'getUrl' | 'forEach'> & { getQuery(): string };

/** Whom a request came from, how, and the path of the route that serves it. */
export type Connection = Pick<RequestHead, 'address' | 'scheme' | 'route'>;

/**
 * Copies a request's head from uWS, whose `req` is only valid until the first await. Repeated fields are joined by `, `. uWS bounds them: 4
 * KiB and about 100 fields.
 */
export function snapshot(req: Request, connection: Connection): Snapshot {
  const fields = new Map<string, string>();
  let refusal: string | undefined;
  const repeated: string[] = [];
  req.forEach((name, value) => {
    const before = fields.get(name);
    if (before === undefined) {
      fields.set(name, value);
      return;
    }
    if (SINGLE.has(name) || name.startsWith('x-ra-')) refusal ??= `The header ${shown(name)} is given twice.`;
    repeated.push(name);
    fields.set(name, `${before}, ${value}`);
  });

  // uWS treats any Transfer-Encoding as chunked and ignores an empty Content-Length.
  const transfer = fields.get('transfer-encoding');
  const length = fields.get('content-length');
  const misframed = misframing(transfer, length);
  refusal ??= misframed;
  const readable = misframed === undefined && !repeated.some((name) => FRAMES.has(name));
  const bodyLength = !readable ? 0 : transfer !== undefined ? 'chunked' : Number(length ?? 0);
  const head = headOf(req, connection, fields);
  return { head, bodyLength, ...(refusal !== undefined && { refusal }) };
}

/** Why parsers may see the body end elsewhere. */
function misframing(transfer: string | undefined, length: string | undefined): string | undefined {
  if (transfer !== undefined && transfer.toLowerCase() !== 'chunked')
    return 'The only supported Transfer-Encoding is chunked.';
  if (length !== undefined && !CONTENT_LENGTH.test(length)) return 'Content-Length is not a number.';
  if (length !== undefined && transfer !== undefined) return 'Content-Length and Transfer-Encoding exclude each other.';
  return undefined;
}

/** Field names under `x-ra-` are chosen by the caller and are not echoed. */
function shown(name: string): string {
  return SINGLE.has(name) ? name : 'x-ra-*';
}
