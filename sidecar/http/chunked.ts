import type { HttpResponse } from './uws.js';

/**
 * A chunked body with a trailer, which uWS cannot send.
 *
 * uWS has `write()` for chunks, but it ends such a body with a bare last chunk, so that nothing can follow the data.
 * What it does have is `writeHeader(key, value)`, which puts `key: value\r\n` on the wire verbatim and never asks
 * whether the header block is over. So the block is closed by hand and each chunk is written as a "header":
 *
 *     HTTP/1.1 200 OK\r\n
 *     …
 *     Transfer-Encoding: chunked\r\n          writeHeader('Transfer-Encoding', 'chunked\r\n')
 *     \r\n
 *     8\r\ndata: a\n\n\r\n                    writeHeader('8\r\ndata', 'a\n\n')
 *     0\r\nServer-Timing: ra-ttft;dur=1\r\n   writeHeader('0\r\nServer-Timing', 'ra-ttft;dur=1')
 *     Date: …\r\n\r\n                         endWithoutBody(), which cannot be kept from its Date
 *
 * Every chunk therefore holds one `name: value`, which is just what a server-sent event or comment is. A body that
 * ends without a trailer takes its `0\r\n` along with the last chunk's value.
 *
 * Two things follow. The length is counted here, in bytes of UTF-8. And uWS reports no backpressure in this mode:
 * what a reader does not take is buffered, without a bound.
 *
 * Asking. uWS's `tryEnd(bytes, total)` takes no more than the socket has room for and says how much, and it goes on
 * for as long as `total` is not reached. At its first call it closes the header block with fields of its own, which
 * is no harm inside a chunk: they become a comment and two fields that no event stream knows, which its readers are
 * bound to ignore (HTML, "server-sent events", 9.2.6).
 *
 *     4b\r\n: \r\n                             writeHeader('4b\r\n', '')
 *     Date: …\r\n                              tryEnd(bytes, ENDLESS), the first time
 *     Content-Length: 9007199254740991\r\n
 *     \r\n
 *     8\r\ndata: a\n\n\r\n                    and what is handed to it, from now on framed by us
 *     0\r\nServer-Timing: ra-ttft;dur=1\r\n\r\n
 *
 * So it is done only where a reader may be behind.
 */
export type ChunkedResponse = Pick<HttpResponse, 'writeHeader' | 'endWithoutBody'>;

/** The functions that writing with backpressure needs. */
export type AskedResponse = Pick<HttpResponse, 'writeHeader' | 'tryEnd' | 'getWriteOffset' | 'onWritable' | 'cork'>;

/** A total that no stream reaches. */
const ENDLESS = Number.MAX_SAFE_INTEGER;

/** Bytes of our line and of uWS's two lines (`Date` always has 29 characters) in the chunk that contains them. */
const ASKING = ': \r\n'.length + 'Date: \r\n'.length + 29 + `Content-Length: ${ENDLESS}\r\n`.length;

/** One chunk, prepared for {@link writeChunk}. */
export interface Chunk {
  readonly key: string;
  readonly value: string;
  /** Its bytes on the wire. */
  readonly bytes: number;
}

/** The chunk whose data is `name: text`, LF, LF. `name` is ASCII. */
export function chunk(name: string, text: string): Chunk {
  const size = name.length + 2 + Buffer.byteLength(text) + 2;
  const hex = size.toString(16);
  return { key: `${hex}\r\n${name}`, value: `${text}\n\n`, bytes: hex.length + 2 + size + 2 };
}

/** Announces the body and closes the header block. */
export function openChunked(res: ChunkedResponse): void {
  res.writeHeader('Transfer-Encoding', 'chunked\r\n');
}

/** `final`: nothing follows, neither a chunk nor a trailer. */
export function writeChunk(res: ChunkedResponse, { key, value }: Chunk, final = false): void {
  res.writeHeader(key, final ? `${value}\r\n0` : value);
}

/** Ends the body and the response. Without a trailer the last chunk must have been written as `final`. */
export function endChunked(res: ChunkedResponse, trailer?: readonly [name: string, value: string]): void {
  if (trailer !== undefined) res.writeHeader(`0\r\n${trailer[0]}`, trailer[1]);
  res.endWithoutBody();
}

/** Switches to writing with backpressure. {@link tryChunks} must follow, and no other write is allowed from then on. */
export function beginAsking(res: AskedResponse): void {
  res.writeHeader(`${ASKING.toString(16)}\r\n`, '');
}

/** The result of passing bytes to uWS. */
export interface Taken {
  /** Number of accepted bytes. */
  readonly taken: number;
  /** The socket is full until uWS calls back. */
  readonly full: boolean;
}

/**
 * Passes as much of `bytes` as the socket has room for; `last`: the response ends once all are accepted. `res` must be
 * corked.
 */
export function tryChunks(res: AskedResponse, bytes: Uint8Array, last: boolean): Taken {
  const before = res.getWriteOffset();
  const [ok, done] = res.tryEnd(bytes, last ? before + bytes.length : ENDLESS);
  return { taken: ok || done ? bytes.length : res.getWriteOffset() - before, full: !ok };
}

/** The bytes that {@link writeChunk} sends. */
export function wireText({ key, value }: Chunk): string {
  return `${key}: ${value}\r\n`;
}

/** The bytes that {@link endChunked} sends. */
export function lastBytes(trailer?: readonly [name: string, value: string]): string {
  return trailer === undefined ? '0\r\n\r\n' : `0\r\n${trailer[0]}: ${trailer[1]}\r\n\r\n`;
}
