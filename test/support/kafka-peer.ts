/**
 * The part of a Kafka cluster of two brokers that an idempotent producer uses, over TCP: versions, metadata, producer
 * ids, and record batches for a topic of two partitions, which are kept as they came. A test decides about each request
 * and which broker leads which partition.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** What a broker does with one Produce request: `moved` is NOT_LEADER_FOR_PARTITION, `silence` no answer. */
export type KafkaVerdict = 'store' | 'moved' | 'close' | 'silence';

/** One Produce request. */
export interface ProduceRequest {
  /** 1 or 2. */
  readonly broker: number;
  /** Numbers of partitions. */
  readonly partitions: readonly number[];
}

const TOPIC = 'usage';
const NOT_LEADER = 6;

/** Kafka’s numbers of requests, with the newest version that is answered here. */
const VERSIONS = { produce: [0, 3], metadata: [3, 1], versions: [18, 0], producerId: [22, 0] } as const;

export class KafkaPeer {
  /** By partition, the broker that leads it. */
  leaders: [number, number] = [1, 2];
  /** Record batches by partition, as the bytes that came. */
  readonly stored: [Buffer[], Buffer[]] = [[], []];
  readonly requests: ProduceRequest[] = [];
  verdict: (request: ProduceRequest) => KafkaVerdict | Promise<KafkaVerdict> = () => 'store';
  readonly #sockets = new Set<Socket>();
  readonly #servers: readonly Server[] = [1, 2].map((broker) => createServer((socket) => this.#serve(broker, socket)));

  static async start(t: Owner): Promise<KafkaPeer> {
    const peer = new KafkaPeer();
    for (const server of peer.#servers) await once(server.listen(0, '127.0.0.1'), 'listening');
    t.teardown(async () => {
      const closed = peer.#servers.map((server) => once(server.close(), 'close'));
      for (const socket of peer.#sockets) socket.destroy();
      await Promise.all(closed);
    });
    return peer;
  }

  /** Of both brokers. */
  get ports(): readonly number[] {
    return this.#servers.map((server) => (server.address() as AddressInfo).port);
  }

  /** Open connections. */
  get connections(): number {
    return this.#sockets.size;
  }

  #serve(broker: number, socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    let bytes = Buffer.alloc(0);
    socket.on('data', (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 4 && bytes.length >= 4 + bytes.readInt32BE(0)) {
        const end = 4 + bytes.readInt32BE(0);
        void this.#answer(broker, socket, new Reader(bytes.subarray(4, end)));
        bytes = bytes.subarray(end);
      }
    });
  }

  async #answer(broker: number, socket: Socket, request: Reader): Promise<void> {
    const kind = request.int16();
    request.int16();
    const id = request.int32();
    request.text();
    const body = kind === VERSIONS.produce[0] ? await this.#produce(broker, request) : this.#other(kind);
    if (body === 'close') socket.destroy();
    else if (body !== 'silence') socket.write(Buffer.concat([int32(4 + body.length), int32(id), body]));
  }

  #other(kind: number): Buffer {
    if (kind === VERSIONS.versions[0]) {
      const known = Object.values(VERSIONS).map(([number, newest]) => [int16(number), int16(0), int16(newest)]);
      return Buffer.concat([int16(0), ...list(known)]);
    }
    // No throttling, no error, number 7 of its first epoch.
    if (kind === VERSIONS.producerId[0]) return Buffer.concat([int32(0), int16(0), int32(0), int32(7), int16(0)]);
    if (kind !== VERSIONS.metadata[0]) throw new Error(`a request of kind ${kind}`);
    const brokers = this.ports.map((port, at) => [int32(at + 1), text('127.0.0.1'), int32(port), int16(-1)]);
    const replicas = list([[int32(1)], [int32(2)]]);
    const partitions = this.leaders.map((leader, at) => [int16(0), int32(at), int32(leader), ...replicas, ...replicas]);
    const topic = [int16(0), text(TOPIC), Buffer.alloc(1), ...list(partitions)];
    return Buffer.concat([...list(brokers), int32(1), ...list([topic])]);
  }

  async #produce(broker: number, request: Reader): Promise<Buffer | 'close' | 'silence'> {
    const parts = partsOf(request);
    const asked = { broker, partitions: parts.map(({ partition }) => partition) };
    this.requests.push(asked);
    const verdict = await this.verdict(asked);
    if (verdict === 'close' || verdict === 'silence') return verdict;
    if (verdict === 'store') for (const { partition, records } of parts) this.stored[partition]?.push(records);
    const error = int16(verdict === 'moved' ? NOT_LEADER : 0);
    const answers = asked.partitions.map((partition) => [int32(partition), error, Buffer.alloc(16)]);
    return Buffer.concat([...list([[text(TOPIC), ...list(answers)]]), int32(0)]);
  }
}

/** Of a Produce request of version 3: transaction, acknowledgements, time limit, topics. */
function partsOf(request: Reader): { partition: number; records: Buffer }[] {
  request.text();
  request.int16();
  request.int32();
  return request.list(() => {
    request.text();
    return request.list(() => ({ partition: request.int32(), records: request.bytes() }));
  })[0]!;
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  int16(): number {
    return this.#bytes.readInt16BE((this.#at += 2) - 2);
  }

  int32(): number {
    return this.#bytes.readInt32BE((this.#at += 4) - 4);
  }

  text(): string {
    return this.#take(this.int16()).toString();
  }

  bytes(): Buffer {
    return this.#take(this.int32());
  }

  list<T>(item: () => T): T[] {
    return Array.from({ length: this.int32() }, item);
  }

  /** A negative length is Kafka’s null. */
  #take(length: number): Buffer {
    const begin = this.#at;
    this.#at += Math.max(length, 0);
    return this.#bytes.subarray(begin, this.#at);
  }
}

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

function text(value: string): Buffer {
  return Buffer.concat([int16(value.length), Buffer.from(value)]);
}

function list(items: readonly (readonly Buffer[])[]): Buffer[] {
  return [int32(items.length), ...items.flat()];
}
