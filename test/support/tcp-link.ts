import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/**
 * The states of a link. `open`: everything passes; `mute`: the server’s bytes are lost; `deaf`: the client’s are;
 * `cut`: no new connection is possible, and existing ones are closed.
 */
export type LinkState = 'open' | 'mute' | 'deaf' | 'cut';

/** A TCP connection to a server of this machine that a test can break in each way. Closed with the test. */
export class TcpLink {
  readonly #server: Server;
  readonly #target: () => number;
  readonly #sockets = new Set<Socket>();
  #state: LinkState = 'open';

  private constructor(target: () => number) {
    this.#target = target;
    this.#server = createServer((client) => this.#carry(client));
  }

  /** `target`: returns the server’s port, called for each connection. */
  static async start(t: Owner, target: () => number): Promise<TcpLink> {
    const link = new TcpLink(target);
    await once(link.#server.listen(0, '127.0.0.1'), 'listening');
    t.teardown(async () => {
      const closed = once(link.#server.close(), 'close');
      link.#cutAll();
      await closed;
    });
    return link;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** From here on. A connection that lost bytes is useless: it ends when the link is opened again. */
  set(state: LinkState): void {
    if (state === 'cut' || this.#state === 'mute' || this.#state === 'deaf') this.#cutAll();
    this.#state = state;
  }

  #cutAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #carry(client: Socket): void {
    if (this.#state === 'cut') {
      client.destroy();
      return;
    }
    const server = connect(this.#target(), '127.0.0.1');
    for (const [from, to, lost] of [
      [client, server, 'deaf'],
      [server, client, 'mute'],
    ] as const) {
      this.#sockets.add(from);
      from.setNoDelay(true);
      from.on('data', (bytes) => {
        if (this.#state !== lost) to.write(bytes);
      });
      from.on('error', () => undefined);
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
    }
  }
}
