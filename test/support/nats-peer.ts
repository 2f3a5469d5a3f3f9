/**
 * The part of a NATS server with a JetStream stream that a publisher uses, over TCP: acknowledgements, known ids, the
 * expected stream, messages that are too long, subjects without a stream. `make e2e` runs the same contract against the
 * real server.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

export interface PeerMessage {
  readonly subject: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

interface Client {
  readonly socket: Socket;
  /** By their numbers, subjects without the wildcard at their end. */
  readonly subscriptions: Map<string, string>;
}

/**
 * The answer to one message: its number in the stream, JetStream’s own error, or what something else that subscribes to
 * the subject answers.
 */
type Verdict =
  | { readonly seq: number; readonly duplicate: boolean; readonly stream?: string }
  | { readonly code: number }
  | { readonly stranger: unknown }
  | 'no responders';

const STREAM = 'USAGE';
const SUBJECTS = /^usage\.[^.]+$/;
/** Of the stream; the server accepts more. */
const MAX_MESSAGE = 4096;
const MAX_PAYLOAD = 64 * 1024;

export class NatsPeer {
  readonly messages: PeerMessage[] = [];
  /** The clients’ CONNECT messages. */
  readonly connects: Readonly<Record<string, unknown>>[] = [];
  /** Decides in place of the stream. */
  verdict: (message: PeerMessage) => Verdict | undefined = () => undefined;
  /** Sends the client’s CONNECT back, with its credentials, which a client cannot read as an answer. */
  echoes = false;
  readonly #seen = new Map<string, number>();
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((socket) => this.#serve(socket));

  /** On a free port, or on one that a test found before. */
  static async start(t: Owner, port = 0): Promise<NatsPeer> {
    const peer = new NatsPeer();
    await once(peer.#server.listen(port, '127.0.0.1'), 'listening');
    t.teardown(async () => {
      const closed = once(peer.#server.close(), 'close');
      for (const socket of peer.#sockets) socket.destroy();
      await closed;
    });
    return peer;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Open connections. */
  get connections(): number {
    return this.#sockets.size;
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    const info = {
      server_id: 'peer',
      version: '2.9.10',
      proto: 1,
      headers: true,
      max_payload: MAX_PAYLOAD,
      jetstream: true,
    };
    socket.write(`INFO ${JSON.stringify(info)}\r\n`);
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    const client = { socket, subscriptions: new Map<string, string>() };
    let bytes = Buffer.alloc(0);
    socket.on('data', (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      for (let used = this.#take(client, bytes); used > 0; used = this.#take(client, bytes))
        bytes = bytes.subarray(used);
    });
  }

  /** Runs the first command in `bytes` and returns its length; 0: it is incomplete. */
  #take({ socket, subscriptions }: Client, bytes: Buffer): number {
    const end = bytes.indexOf('\r\n');
    if (end < 0) return 0;
    const [verb, ...words] = bytes.subarray(0, end).toString().split(' ');
    const begin = end + 2;
    if (verb === 'HPUB') {
      const [subject = '', reply = '', headerText, allText] = words;
      const [headerBytes, allBytes] = [Number(headerText), Number(allText)];
      if (bytes.length < begin + allBytes + 2) return 0;
      const payload = bytes.subarray(begin, begin + allBytes);
      const headers = headersOf(payload.subarray(0, headerBytes).toString());
      const message = { subject, headers, body: payload.subarray(headerBytes).toString() };
      const sid = [...subscriptions].find(([, prefix]) => reply.startsWith(prefix))?.[0] ?? '0';
      socket.write(answer(reply, sid, this.#verdictOf(message, allBytes)));
      return begin + allBytes + 2;
    }
    if (verb === 'SUB') subscriptions.set(words.at(-1) ?? '', (words[0] ?? '').replace(/\*$/, ''));
    if (verb === 'PING') socket.write('PONG\r\n');
    if (verb === 'CONNECT' && this.echoes) socket.write(bytes.subarray(0, begin));
    if (verb === 'CONNECT') this.connects.push(JSON.parse(words.join(' ')) as Record<string, unknown>);
    return begin;
  }

  #verdictOf(message: PeerMessage, size: number): Verdict {
    const decided = this.verdict(message);
    if (decided !== undefined) return decided;
    if (!SUBJECTS.test(message.subject)) return 'no responders';
    if (message.headers['Nats-Expected-Stream'] !== STREAM) return { code: 10_060 };
    if (size > MAX_MESSAGE) return { code: 10_054 };
    const id = message.headers['Nats-Msg-Id'] ?? '';
    const seen = this.#seen.get(id);
    if (seen !== undefined) return { seq: seen, duplicate: true };
    this.messages.push(message);
    this.#seen.set(id, this.messages.length);
    return { seq: this.messages.length, duplicate: false };
  }
}

function headersOf(text: string): Record<string, string> {
  const lines = text.split('\r\n').slice(1);
  return Object.fromEntries(
    lines
      .filter((line) => line !== '')
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]),
  );
}

function answer(reply: string, sid: string, verdict: Verdict): string {
  if (verdict === 'no responders') {
    const head = 'NATS/1.0 503\r\n\r\n';
    return `HMSG ${reply} ${sid} ${head.length} ${head.length}\r\n${head}\r\n`;
  }
  const body = JSON.stringify(answerTo(verdict));
  return `MSG ${reply} ${sid} ${Buffer.byteLength(body)}\r\n${body}\r\n`;
}

function answerTo(verdict: Exclude<Verdict, string>): unknown {
  if ('stranger' in verdict) return verdict.stranger;
  if ('code' in verdict)
    return { error: { code: 400, err_code: verdict.code, description: 'a description that no log may show' } };
  return { stream: STREAM, ...verdict };
}
