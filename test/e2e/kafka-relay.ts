/**
 * Forwards Kafka’s protocol between a client and librdkafka’s mock cluster, and corrects two fields of the cluster’s
 * metadata: the broker’s address, so that clients reconnect through the relay and a test can break the connection, and
 * the controller’s number, which Debian’s version of the mock sets to that of no broker. Everything else is forwarded
 * unchanged.
 */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** Kafka’s number of a metadata request. */
const METADATA = 3;

/** The address of the broker as the relay reports it. */
export type AdvertisedPort = () => number;

/** Starts a relay to the broker on `target` and resolves with its port. Closed with the test. */
export async function startRelay(t: Owner, target: number, advertised: AdvertisedPort): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const broker = connect(target, '127.0.0.1');
    /** Versions of the pending metadata requests, by their correlation ids. */
    const asked = new Map<number, number>();
    onFrames(client, (frame) => {
      if (frame.readInt16BE(4) === METADATA) asked.set(frame.readInt32BE(8), frame.readInt16BE(6));
      broker.write(frame);
    });
    onFrames(broker, (frame) => {
      const version = asked.get(frame.readInt32BE(4));
      if (version !== undefined) mend(frame, version, advertised());
      client.write(frame);
    });
    for (const [socket, other] of [
      [client, broker],
      [broker, client],
    ] as const) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(async () => {
    const closed = once(server.close(), 'close');
    for (const socket of sockets) socket.destroy();
    await closed;
  });
  return (server.address() as AddressInfo).port;
}

/** Calls `fn` with each frame that arrives, its length of 4 bytes included. */
function onFrames(socket: Socket, each: (frame: Buffer) => void): void {
  let bytes = Buffer.alloc(0);
  socket.on('data', (chunk) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (bytes.length >= 4 && bytes.length >= 4 + bytes.readInt32BE(0)) {
      const end = 4 + bytes.readInt32BE(0);
      each(Buffer.from(bytes.subarray(0, end)));
      bytes = bytes.subarray(end);
    }
  });
}

/**
 * Rewrites a metadata response of version 1 or 2: brokers (id, host, port, rack), the cluster’s name, the controller.
 */
function mend(frame: Buffer, version: number, port: number): void {
  if (version !== 1 && version !== 2) throw new Error(`metadata of version ${version}`);
  let at = 8;
  const brokers = frame.readInt32BE(at);
  if (brokers !== 1) throw new Error(`${brokers} brokers`);
  at += 4;
  const node = frame.readInt32BE(at);
  at += 4;
  at += 2 + frame.readInt16BE(at);
  frame.writeInt32BE(port, at);
  at += 4;
  at += 2 + Math.max(frame.readInt16BE(at), 0);
  if (version === 2) at += 2 + Math.max(frame.readInt16BE(at), 0);
  frame.writeInt32BE(node, at);
}
