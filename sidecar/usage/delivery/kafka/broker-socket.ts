/**
 * The connections to brokers. KafkaJS 2.2.4 trusts the bytes that it receives; a peer that is no broker must not end the
 * sidecar. It also has no way to end a `send`: that connects again and repeats its request after a disconnect.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';

/** As long as KafkaJS' own sockets are idle before the first probe, ms. */
const KEEP_ALIVE_MS = 60_000;

/** The code of a connection whose peer sent what the client cannot read. */
const UNREADABLE = 'EPROTO';

/** The code of a connection whose producer was closed. */
const CLOSED = 'ECANCELED';

/** What KafkaJS asks a socket factory for. */
export interface BrokerSocketArgs {
  readonly host: string;
  readonly port: number;
  /** Undefined: without TLS. */
  readonly ssl: ConnectionOptions | undefined;
  readonly onConnect: () => void;
}

/** The connections of one producer. */
export class BrokerSockets {
  readonly #open = new Set<Socket>();
  #closed = false;

  /** KafkaJS' socket factory. Throws once they are closed. */
  readonly connect = (args: BrokerSocketArgs): Socket => {
    if (this.#closed) throw closedError();
    const socket = brokerSocket(args);
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    return socket;
  };

  /** Closes all sockets, with an error that rejects KafkaJS' pending requests, and opens no others. Idempotent. */
  close(): void {
    this.#closed = true;
    for (const socket of this.#open) socket.destroy(closedError());
  }
}

function closedError(): Error {
  return Object.assign(new Error('the producer was closed'), { code: CLOSED });
}

/**
 * A connecting socket like KafkaJS' own, except that an exception in a listener of `data` closes the connection with an
 * error. KafkaJS parses answers in that listener: a length below 4 throws there, which would be an uncaught exception.
 */
function brokerSocket({ host, port, ssl, onConnect }: BrokerSocketArgs): Socket {
  const socket = ssl
    ? connectTls({ host, port, ...(isIP(host) === 0 && { servername: host }), ...ssl }, onConnect)
    : connectTcp({ host, port }, onConnect);
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
  const on = socket.on.bind(socket) as Socket['on'];
  const guarded = (event: string, listener: (...given: unknown[]) => void): Socket =>
    on(event, event === 'data' ? guard(socket, listener) : listener);
  socket.on = guarded as Socket['on'];
  return socket;
}

function guard(socket: Socket, listener: (...given: unknown[]) => void): (...given: unknown[]) => void {
  return (...given) => {
    try {
      listener(...given);
    } catch {
      // Without the exception, whose message may quote the bytes.
      socket.destroy(Object.assign(new Error('an answer that cannot be read'), { code: UNREADABLE }));
    }
  };
}
