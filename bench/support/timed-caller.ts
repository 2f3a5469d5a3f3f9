import { connect, type Socket } from 'node:net';

/** One answered request: the sidecar’s times, and those of a clock outside, in ms. */
export interface Timed {
  readonly queueMs: number;
  readonly admitMs: number;
  /** From the request’s last byte written to the job’s arrival at the engine. */
  readonly outsideMs: number;
}

/** Any answer. */
export interface TimedAnswer {
  /** All of it, head and body. */
  readonly response: string;
  /** From the request's last byte written to the answer's last byte. */
  readonly ms: number;
}

const TIMING = /\r\nserver-timing: [^\r\n]*ra-queue;dur=([0-9.]+), ra-admit;dur=([0-9.]+)\r\n/i;

/** A kept-alive connection with one request at a time, as simple as possible, so that the caller’s work is small. */
export class TimedCaller {
  readonly #socket: Socket;
  readonly #request: string;
  #received = '';
  #answered: ((response: string) => void) | undefined;
  #failed: ((error: Error) => void) | undefined;

  private constructor(socket: Socket, request: string) {
    this.#socket = socket;
    this.#request = request;
    socket.setNoDelay(true);
    socket.setEncoding('latin1').on('data', (text: string) => this.#take(text));
    socket.on('error', () => undefined).once('close', () => this.#failed?.(new Error('the connection was closed')));
  }

  /** `body`: of every request. `key`: the caller’s. `headers`: in addition to those of every request. */
  static async open(
    port: number,
    body: string,
    key = 'good',
    headers: Readonly<Record<string, string>> = {},
  ): Promise<TimedCaller> {
    const socket = connect(port, '127.0.0.1');
    await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
    const more = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const fields = `Host: bench\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\n${more.join('')}`;
    const head = `POST /v1/chat/completions HTTP/1.1\r\n${fields}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n`;
    return new TimedCaller(socket, head + body);
  }

  /**
   * The engine’s reply must contain when its job arrived (STUB_JOB.clocked). Rejects on anything but a 200 with its
   * times; also if the sidecar has closed the connection, as it does with idle ones.
   */
  async ask(): Promise<Timed> {
    const from = process.hrtime.bigint();
    const response = await this.send();
    const [, queueMs, admitMs] = TIMING.exec(response) ?? [];
    const came = /"content":"([0-9]+)"/.exec(response)?.[1];
    if (came === undefined || queueMs === undefined) throw new Error(`answered ${response.slice(0, 12)}`);
    const outsideMs = Number(BigInt(came) - from) / 1e6;
    return { queueMs: Number(queueMs), admitMs: Number(admitMs), outsideMs };
  }

  /** Any answer, and its duration. */
  async time(): Promise<TimedAnswer> {
    const from = performance.now();
    const response = await this.send();
    return { response, ms: performance.now() - from };
  }

  /** Any answer. Rejects if the connection ends before. */
  send(): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#failed = reject;
      this.#answered = resolve;
      this.#socket.write(this.#request);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(text: string): void {
    this.#received += text;
    const head = this.#received.indexOf('\r\n\r\n');
    const length = /\r\ncontent-length: ([0-9]+)/i.exec(this.#received)?.[1];
    if (head < 0 || length === undefined || this.#received.length < head + 4 + Number(length)) return;
    const response = this.#received;
    this.#received = '';
    this.#answered?.(response);
  }
}
