import { connect } from 'node:net';
import type { Socket } from 'node:net';

/** One response as it was on the wire. */
export interface RawResponse {
  readonly status: number;
  readonly reason: string;
  /** In order, names as sent. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  /** The one value of a field, in any case; undefined if absent. Throws if there are two. */
  field(name: string): string | undefined;
  /** De-chunked. */
  readonly body: string;
  /** The data of each chunk; empty unless chunked. */
  readonly chunks: readonly string[];
  readonly trailers: readonly (readonly [name: string, value: string])[];
  /** Every byte, as Latin-1. */
  readonly raw: string;
}

/**
 * The data of the last chunk of a stream without a trailer, where the HTTP library puts two fields of its own; sidecar/http/chunked.ts
 * describes how.
 */
export const BARE_END = /^: \r\nDate: [^\r\n]{29}\r\nContent-Length: 5\r\n$/;

/** Each chunked body ends so, with or without a trailer. */
const CHUNKS_END = '\r\n\r\n';

interface Waiter {
  /** Absent: always. */
  mayAttempt?(): boolean;
  /** True when it is satisfied and need not be called again. */
  attempt(): boolean;
  fail(error: Error): void;
}

/**
 * A connection that sends given bytes and parses responses strictly: CRLF everywhere, no folded fields, exact lengths,
 * nothing between two responses. What a lenient client would accept is an error here.
 */
export class RawConnection {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  /** Received after that, and not looked at yet. */
  #pieces: Buffer[] = [];
  #ended = false;
  /** The response that is awaited is chunked: without {@link CHUNKS_END} it is not whole. */
  #isChunked = false;
  /** {@link CHUNKS_END} has come since the bytes were found to be incomplete. */
  #mayBeWhole = true;
  /** Bytes of the last piece, in which {@link CHUNKS_END} may begin. */
  #last = '';
  #waiters: Waiter[] = [];

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (bytes) => {
      this.#pieces.push(bytes);
      const text = this.#last + bytes.toString('latin1');
      this.#mayBeWhole ||= text.includes(CHUNKS_END);
      this.#last = text.slice(1 - CHUNKS_END.length);
      this.#advance();
    });
    // A reset is treated as the end of the received bytes.
    socket.on('error', () => undefined);
    for (const event of ['end', 'close'] as const) {
      socket.on(event, () => {
        this.#ended = true;
        this.#advance();
      });
    }
  }

  /** Connects to a port of 127.0.0.1 or to a Unix socket. The socket may stay half open. */
  static async open(at: number | string): Promise<RawConnection> {
    const where = typeof at === 'number' ? { port: at, host: '127.0.0.1' } : { path: at };
    const socket = connect({ ...where, allowHalfOpen: true });
    const connection = new RawConnection(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', () => resolve());
      socket.once('error', reject);
    });
    socket.setNoDelay(true);
    return connection;
  }

  send(bytes: string | Uint8Array): this {
    this.socket.write(bytes);
    return this;
  }

  /** Sends a request. A body gets a Content-Length unless `headers` frame it. */
  request(method: string, path: string, headers: Readonly<Record<string, string>> = {}, body?: string): this {
    const framed = 'Content-Length' in headers || 'Transfer-Encoding' in headers;
    const all: Record<string, string> = { Host: 'localhost', ...headers };
    if (body !== undefined && !framed) all['Content-Length'] = String(Buffer.byteLength(body));
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    return this.send(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body ?? ''}`);
  }

  /** The next whole response. `head`: it answers a HEAD request and has no body. */
  response({ head = false } = {}): Promise<RawResponse> {
    return this.#wait(
      (resolve) => {
        const parsed = this.#parsed(head);
        if (parsed === undefined) return false;
        this.#received = this.#received.subarray(parsed.length);
        resolve(parsed.response);
        return true;
      },
      () => this.#isWorthParsing(),
    );
  }

  #isWorthParsing(): boolean {
    return !this.#isChunked || this.#mayBeWhole || this.#ended;
  }

  /** Does not parse what cannot be whole: a stream of thousands of frames would be read from its start with each of them. */
  #parsed(head: boolean): ReturnType<typeof parse> {
    if (!this.#isWorthParsing()) return undefined;
    const parsed = parse(this.#received, head);
    this.#mayBeWhole = false;
    const end = this.#received.indexOf(CHUNKS_END);
    const fields = end < 0 ? '' : this.#received.toString('latin1', 0, end);
    this.#isChunked = parsed === undefined && /^transfer-encoding: ?chunked\r?$/im.test(fields);
    return parsed;
  }

  /**
   * Resolves once `text` is among the bytes not yet taken by {@link response}. Rejects if they are a whole response
   * without it, such as a refusal on a connection that stays open.
   */
  until(text: string): Promise<void> {
    return this.#wait((resolve) => {
      if (this.#received.includes(text)) {
        resolve();
        return true;
      }
      const whole = this.#parsed(false)?.response;
      if (whole !== undefined) throw new Error(`no ${JSON.stringify(text)} in ${JSON.stringify(whole.raw)}`);
      return false;
    });
  }

  /** The bytes left when the server closes its side, as Latin-1. */
  rest(): Promise<string> {
    return this.#wait(
      (resolve) => {
        resolve(this.#received.toString('latin1'));
        return true;
      },
      () => this.#ended,
    );
  }

  close(): void {
    this.socket.destroy();
  }

  #wait<T>(attempt: (resolve: (value: T) => void) => boolean, mayAttempt?: () => boolean): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#waiters.push({ attempt: () => attempt(resolve), fail: reject, ...(mayAttempt && { mayAttempt }) });
      this.#advance();
    });
  }

  #advance(): void {
    const [first] = this.#waiters;
    if (first === undefined || first.mayAttempt?.() === false) return;
    // Not for each piece: what is sent until a socket is full may be tens of MB in pieces of 64 KB.
    if (this.#pieces.length > 0) this.#received = Buffer.concat([this.#received, ...this.#pieces.splice(0)]);
    for (let waiter = this.#waiters[0]; waiter !== undefined; waiter = this.#waiters[0]) {
      try {
        if (waiter.mayAttempt?.() === false) return;
        if (!waiter.attempt()) {
          if (!this.#ended) return;
          waiter.fail(new Error(`the connection ended after ${JSON.stringify(this.#received.toString('latin1'))}`));
        }
      } catch (error) {
        waiter.fail(error as Error);
      }
      this.#waiters.shift();
    }
  }
}

/** A response at the start of `bytes`, undefined if it is incomplete. Throws on what HTTP/1.1 forbids. */
export function parse(bytes: Buffer, head: boolean): { response: RawResponse; length: number } | undefined {
  const cursor = new Cursor(bytes);
  const start = cursor.line();
  const fields = cursor.fields();
  if (start === undefined || fields === undefined) return undefined;
  const [, status, reason] = /^HTTP\/1\.1 ([1-5][0-9]{2}) ([ -~]*)$/.exec(start) ?? fault(`status line ${start}`);
  const field = (name: string): string | undefined => {
    const found = fields.filter(([other]) => other.toLowerCase() === name.toLowerCase());
    if (found.length > 1) fault(`two ${name}`);
    return found[0]?.[1];
  };
  const chunks: Buffer[] = [];
  let body: Buffer | undefined = Buffer.alloc(0);
  let trailers: [string, string][] | undefined = [];
  const length = field('content-length');
  if (head || status === '204' || status === '304' || status?.startsWith('1') === true) {
    // No body, whatever the fields say.
  } else if (field('transfer-encoding') === 'chunked') {
    if (length !== undefined) fault('both framings');
    if (!cursor.chunks(chunks)) return undefined;
    body = Buffer.concat(chunks);
    trailers = cursor.fields();
  } else {
    if (length === undefined || !/^[0-9]+$/.test(length)) fault(`Content-Length ${length ?? 'missing'}`);
    body = cursor.take(Number(length));
  }
  if (body === undefined || trailers === undefined) return undefined;
  return {
    length: cursor.at,
    response: {
      status: Number(status),
      reason: reason ?? '',
      fields,
      field,
      body: body.toString('utf8'),
      chunks: chunks.map((chunk) => chunk.toString('utf8')),
      trailers,
      raw: bytes.subarray(0, cursor.at).toString('latin1'),
    },
  };
}

class Cursor {
  at = 0;
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  take(length: number): Buffer | undefined {
    if (this.at + length > this.#bytes.length) return undefined;
    this.at += length;
    return this.#bytes.subarray(this.at - length, this.at);
  }

  line(): string | undefined {
    const end = this.#bytes.indexOf('\n', this.at);
    if (end < 0) return undefined;
    const line = this.#bytes.toString('latin1', this.at, end + 1);
    if (!/^[^\r\n]*\r\n$/.test(line)) fault(`line ${JSON.stringify(line)}`);
    this.at = end + 1;
    return line.slice(0, -2);
  }

  fields(): [string, string][] | undefined {
    const fields: [string, string][] = [];
    for (let line = this.line(); line !== undefined; line = this.line()) {
      if (line === '') return fields;
      const [, name, value] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?(.*)$/.exec(line) ?? fault(`field ${line}`);
      fields.push([name ?? '', value ?? '']);
    }
    return undefined;
  }

  /** Collects the data of all chunks up to the last; false if they are incomplete. */
  chunks(into: Buffer[]): boolean {
    for (let line = this.line(); line !== undefined; line = this.line()) {
      if (!/^[0-9a-f]+$/i.test(line)) fault(`chunk size ${JSON.stringify(line)}`);
      const size = parseInt(line, 16);
      if (size === 0) return true;
      const data = this.take(size);
      const end = this.take(2);
      if (data === undefined || end === undefined) return false;
      if (end.toString('latin1') !== '\r\n') fault('a chunk that is longer than its size');
      into.push(data);
    }
    return false;
  }
}

function fault(what: string): never {
  throw new Error(`not HTTP/1.1: ${what}`);
}
