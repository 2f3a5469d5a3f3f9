import type { HttpResponse } from './uws.js';

/**
 * A chunked body with a trailer, which uWS cannot send.
 *
 * uWS has `write()` for chunks, but it ends such a body with a bare last chunk, so that nothing can follow the data.
 * It does have `writeHeader(key, value)`, which writes `key: value\r\n` verbatim, even after the end of the header
 * block. So the block is ended here and each chunk is written as a "header":
 *
 *     HTTP/1.1 200 OK\r\n
 *     …
 *     Transfer-Encoding: chunked\r\n          writeHeader('Transfer-Encoding', 'chunked\r\n')
 *     \r\n
 *     9\r\ndata: a\n\n\r\n                    writeHeader('9\r\ndata', 'a\n\n')
 *     0\r\nServer-Timing: ra-ttft;dur=1\r\n   writeHeader('0\r\nServer-Timing', 'ra-ttft;dur=1')
 *     Date: …\r\n\r\n                         endWithoutBody(), which cannot be kept from its Date
 *
 * Every chunk therefore holds one `name: value`, which is just what a server-sent event or comment is.
 *
 * Two things follow. The length is counted here, in bytes of UTF-8. And uWS reports no backpressure in this mode:
 * what a reader does not take is buffered, without a bound.
 *
 * Backpressure. uWS's `tryEnd(bytes, total)` accepts no more than the socket has room for and returns how much; the
 * response stays open until `total` is reached. Its first call ends the header block with fields of its own. Inside a
 * chunk they do no harm: they become a comment and two fields that are no fields of an event stream, which its readers
 * must ignore (HTML, "server-sent events", 9.2.6).
 *
 *     4b\r\n: \r\n                             writeHeader('4b\r\n', '')
 *     Date: …\r\n                              tryEnd(bytes, ENDLESS), the first time
 *     Content-Length: 9007199254740991\r\n
 *     \r\n
 *     9\r\ndata: a\n\n\r\n                    and what is handed to it, from now on framed by us
 *     0\r\nServer-Timing: ra-ttft;dur=1\r\n\r\n
 *
 * So it is used only where a reader may be slow, and at the end of a body without a trailer: there uWS's `Date` may not follow
 * the last chunk, where it would be a trailer, which Varnish takes for a broken body. What is handed to `tryEnd` is `0\r\n\r\n` alone.
 */
export type ChunkedResponse = Pick<HttpResponse, 'writeHeader' | 'endWithoutBody'>;

/** The functions that writing with backpressure needs. */
export type BackpressureResponse = Pick<
  HttpResponse,
  'writeHeader' | 'tryEnd' | 'getWriteOffset' | 'onWritable' | 'cork'
>;

/** A total that no stream reaches. */
const ENDLESS = Number.MAX_SAFE_INTEGER;

/** The last bytes of a body without a trailer. */
const END = '0\r\n\r\n';
const END_BYTES: Uint8Array = Buffer.from(END);

/** Bytes of our line and of uWS's two lines (`Date` always has 29 characters) in the chunk that contains them. */
function switchBytes(total: number): number {
  return ': \r\n'.length + 'Date: \r\n'.length + 29 + `Content-Length: ${total}\r\n`.length;
}

/**
 * One chunk, prepared for {@link writeChunk}. A class, since V8 decides for each object literal whether its objects live long. Where it
 * finds that these do, it creates them in the old generation, and each then keeps its frame there until the next full collection, though
 * it is dead at once.
 */
export class Chunk {
  readonly key: string;
  readonly value: string;
  /** Its bytes on the wire. */
  readonly bytes: number;

  constructor(key: string, value: string, bytes: number) {
    this.key = key;
    this.value = value;
    this.bytes = bytes;
  }
}

/** What ends the last line of a chunk: a blank line too, or only the line. */
export type ChunkEnd = '\n\n' | '\n';

/** The chunk whose data is `name: text` and `end`. `name` is ASCII. */
export function chunk(name: string, text: string, end: ChunkEnd = '\n\n'): Chunk {
  const size = name.length + 2 + Buffer.byteLength(text) + end.length;
  const hex = size.toString(16);
  return new Chunk(`${hex}\r\n${name}`, text + end, hex.length + 2 + size + 2);
}

/** Announces the body and closes the header block. */
export function openChunked(res: ChunkedResponse): void {
  res.writeHeader('Transfer-Encoding', 'chunked\r\n');
}

/** `final`: ends the body too, without a trailer, and leaves the response open for uWS. */
export function writeChunk(res: ChunkedResponse, { key, value }: Chunk, final = false): void {
  res.writeHeader(key, final ? `${value}\r\n0\r\n` : value);
}

export type Trailer = readonly [name: string, value: string];

/** Ends the body with a trailer, and the response. */
export function endChunked(res: ChunkedResponse, [name, value]: Trailer): void {
  res.writeHeader(`0\r\n${name}`, value);
  res.endWithoutBody();
}

/** Ends the body as {@link endChunked} does, and leaves the response open for uWS. */
export function endOpen(res: ChunkedResponse, [name, value]: Trailer): void {
  // Its second line break ends the trailer.
  res.writeHeader(`0\r\n${name}`, `${value}\r\n`);
}

/** Ends the body without a trailer, and the response. Returns what uWS did not take: it follows by {@link tryChunks}. `res` must be corked. */
export function endBare(res: BackpressureResponse): string {
  res.writeHeader(`${switchBytes(END.length).toString(16)}\r\n`, '');
  return END.slice(tryChunks(res, END_BYTES, true).taken);
}

/** Switches to writing with backpressure. {@link tryChunks} must follow, and no other write is allowed from then on. */
export function beginBackpressure(res: BackpressureResponse): void {
  res.writeHeader(`${switchBytes(ENDLESS).toString(16)}\r\n`, '');
}

/**
 * Passes as much of `bytes` as the socket has room for; `last`: the response ends once all are accepted. `res` must be corked. Returns how
 * many bytes were taken, and whether the socket is full until uWS calls back.
 */
export function tryChunks(res: BackpressureResponse, bytes: Uint8Array, last: boolean) {
  const before = res.getWriteOffset();
  const [ok, done] = res.tryEnd(bytes, last ? before + bytes.length : ENDLESS);
  return { taken: ok || done ? bytes.length : res.getWriteOffset() - before, full: !ok };
}

/** The bytes that {@link writeChunk} sends. */
export function wireText({ key, value }: Chunk): string {
  return `${key}: ${value}\r\n`;
}

/** The last bytes of a body that is written with backpressure. */
export function lastBytes(trailer: Trailer | undefined): string {
  return trailer === undefined ? END : `0\r\n${trailer[0]}: ${trailer[1]}\r\n\r\n`;
}
