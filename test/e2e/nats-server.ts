/** Debian’s nats-server with JetStream in its own folder, for tests that kill and restart it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jetstreamManager, type JetStreamManager, type StreamConfig } from '@nats-io/jetstream';
import { connect, nanos, type NodeConnectionOptions } from '@nats-io/transport-node';
import { freePort } from '../support/free-port.js';
import { eventually } from '../support/processes.js';

interface Owner {
  teardown(fn: () => Promise<void> | void): void;
}

/** A message as the stream returns it. */
export interface Stored {
  readonly subject: string;
  readonly id: string;
  readonly body: string;
}

/** Longer than any outage of a test. */
const DUPLICATE_WINDOW_MS = 600_000;

export class NatsServer {
  readonly port: number;
  readonly dir: string;
  readonly #access: NodeConnectionOptions;
  #child: ChildProcess | undefined;

  private constructor(port: number, dir: string, access: NodeConnectionOptions) {
    this.port = port;
    this.dir = dir;
    this.#access = access;
  }

  /**
   * Resolves once it accepts connections. `config`: sections of its file; `access`: how the test itself connects,
   * `servers` the host.
   */
  static async start(t: Owner, config = '', access: NodeConnectionOptions = {}): Promise<NatsServer> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-nats-'));
    const server = new NatsServer(await freePort(), dir, access);
    const text = `listen: "127.0.0.1:${server.port}"\njetstream { store_dir: "${dir}" }\n${config}\n`;
    await writeFile(join(dir, 'server.conf'), text);
    t.teardown(async () => {
      await server.kill();
      await rm(dir, { recursive: true, force: true });
    });
    await server.begin();
    return server;
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error('nats-server does not run');
    return pid;
  }

  /** Starts it with its stored messages. */
  async begin(): Promise<void> {
    this.#child = spawn('nats-server', ['-c', join(this.dir, 'server.conf')], { stdio: 'ignore' });
    await eventually('nats-server accepts connections', async () => {
      if (this.#child?.exitCode !== null) throw new Error(`nats-server ended with ${this.#child?.exitCode}`);
      const socket = connectSocket(this.port, '127.0.0.1');
      const open = await once(socket, 'connect').then(
        () => true,
        () => false,
      );
      socket.destroy();
      return open;
    });
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  /** Creates the stream `USAGE` on `usage.*`. */
  async makeStream(more: Partial<StreamConfig> = {}): Promise<void> {
    await this.#ask((manager) =>
      manager.streams.add({
        name: 'USAGE',
        subjects: ['usage.*'],
        duplicate_window: nanos(DUPLICATE_WINDOW_MS),
        ...more,
      }),
    );
  }

  async updateStream(more: Partial<StreamConfig>): Promise<void> {
    await this.#ask((manager) => manager.streams.update('USAGE', more));
  }

  /** All messages of the stream, in order. */
  stored(): Promise<Stored[]> {
    return this.#ask(async (manager) => {
      const { state } = await manager.streams.info('USAGE');
      const found: Stored[] = [];
      for (let seq = state.first_seq; state.messages > 0 && seq <= state.last_seq; seq += 1) {
        const message = await manager.streams.getMessage('USAGE', { seq });
        if (!message) throw new Error(`the stream lost message ${seq}`);
        found.push({ subject: message.subject, id: message.header.get('Nats-Msg-Id'), body: message.string() });
      }
      return found;
    });
  }

  async #ask<T>(work: (manager: JetStreamManager) => Promise<T>): Promise<T> {
    const { servers: host = '127.0.0.1', ...access } = this.#access;
    const connection = await connect({ ...access, servers: `${String(host)}:${this.port}`, reconnect: false });
    try {
      return await work(await jetstreamManager(connection));
    } finally {
      await connection.close();
    }
  }
}
