/**
 * A Kafka cluster for a test: the mock cluster of librdkafka, Kafka’s C client, in a process of Debian’s kcat, which is
 * the reader too. No package registry of this build has a broker of Apache Kafka. The mock speaks the protocol over TCP
 * and is independent of this repository and of KafkaJS; it keeps everything in memory, so it can be stopped but not
 * restarted.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { TcpLink } from '../support/tcp-link.js';
import { startRelay } from './kafka-relay.js';
import { stopProcess } from './stopped.js';

interface Owner {
  teardown(fn: () => Promise<void> | void): void;
}

/** A message as the reader returns it. */
export interface Consumed {
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly payload: string;
  /** Alternating names and values. */
  readonly headers: readonly string[];
}

const run = promisify(execFile);

const TOPIC = 'usage';

export class KafkaMock {
  /** The connection to it, which a test can break. */
  readonly link: TcpLink;
  readonly #port: number;
  readonly #child: ChildProcess;

  private constructor(port: number, child: ChildProcess, link: TcpLink) {
    this.#port = port;
    this.#child = child;
    this.link = link;
  }

  /** Starts a cluster of one broker with a topic of 4 partitions. Resolves once the topic exists. */
  static async start(t: Owner): Promise<KafkaMock> {
    // A producer that waits for its first message, which is never sent.
    const child = spawn('kcat', ['-P', '-b', 'mock', '-t', TOPIC, '-X', 'test.mock.num.brokers=1', '-d', 'mock'], {
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    const gone = once(child, 'exit');
    t.teardown(async () => {
      child.kill('SIGKILL');
      await gone;
    });
    let port: number | undefined;
    const lines = createInterface(child.stderr);
    await new Promise<void>((resolve, reject) => {
      lines.on('line', (line) => {
        port ??= Number(/bootstrap\.servers=127\.0\.0\.1:(\d+)/.exec(line)?.[1] ?? NaN) || undefined;
        if (line.includes(`Created topic "${TOPIC}"`)) resolve();
      });
      void gone.then(() => reject(new Error('kcat ended')));
    });
    if (port === undefined) throw new Error('the mock cluster has no address');
    const link: TcpLink = await TcpLink.start(t, () => relay);
    const relay = await startRelay(t, port, () => link.port);
    return new KafkaMock(port, child, link);
  }

  /** Pauses the cluster until go(); requests that arrive meanwhile are processed then. */
  async stop(): Promise<void> {
    if (this.#child.pid !== undefined) await stopProcess(this.#child.pid);
  }

  go(): void {
    this.#child.kill('SIGCONT');
  }

  /** All messages of the topic, partition by partition, each in its order; checksums are verified. */
  async consumed(): Promise<Consumed[]> {
    const { stdout } = await run(
      'kcat',
      [
        '-C',
        '-b',
        `127.0.0.1:${this.#port}`,
        '-t',
        TOPIC,
        '-o',
        'beginning',
        '-e',
        '-q',
        '-J',
        '-X',
        'check.crcs=true',
      ],
      { maxBuffer: 1 << 28, timeout: 60_000 },
    );
    const found = stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Consumed);
    return found.sort((one, other) => one.partition - other.partition || one.offset - other.offset);
  }
}
