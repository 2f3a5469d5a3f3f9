/**
 * A Kafka cluster for a test: the mock cluster of librdkafka, Kafka's C client, in a process of Debian's kcat, and kcat as
 * the reader. No broker of Apache Kafka can be had from the registries that this is built with. The mock speaks the
 * protocol over TCP, by code that is not ours nor KafkaJS'; it keeps all in memory, so it can be stopped and not restarted.
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

/** A message as the reader has it. */
export interface Consumed {
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly payload: string;
  /** Names and values in turn. */
  readonly headers: readonly string[];
}

const run = promisify(execFile);

const TOPIC = 'usage';

export class KafkaMock {
  /** The way to it, which a test can break. */
  readonly link: TcpLink;
  readonly #port: number;
  readonly #child: ChildProcess;

  private constructor(port: number, child: ChildProcess, link: TcpLink) {
    this.#port = port;
    this.#child = child;
    this.link = link;
  }

  /** A cluster of one broker with a topic of 4 partitions. Resolves once it has the topic. */
  static async start(t: Owner): Promise<KafkaMock> {
    // A producer that waits for a first message, which never comes.
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

  /** It answers nothing until go(); what came meanwhile it does then. */
  async stop(): Promise<void> {
    if (this.#child.pid !== undefined) await stopProcess(this.#child.pid);
  }

  go(): void {
    this.#child.kill('SIGCONT');
  }

  /** All that the topic holds, partition by partition, each in its order; checksums are checked. */
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
