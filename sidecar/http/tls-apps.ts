import type { Clock } from '../lib/clock.js';
import { SSLApp, type TemplatedApp, type us_listen_socket } from './uws.js';

/** A private key and the chain of its certificate, in PEM. uWS reads the files itself. */
export interface TlsFiles {
  readonly keyFile: string;
  readonly certFile: string;
}

/**
 * How long an app that was replaced lives without connections, ms. uWS hands it those that it accepted before in the same turn of the loop;
 * this is longer by far.
 */
const GRACE_MS = 1000;

/** The app of one certificate. */
interface Serving {
  readonly app: TemplatedApp;
  readonly descriptor: ReturnType<TemplatedApp['getDescriptor']>;
  open: number;
}

/**
 * TLS on one port, with a certificate that can be renewed. uWS cannot replace an app's certificate, so each certificate has
 * an app of its own. The acceptor has the listening socket and hands every accepted connection to the newest app:
 *
 *     port --> acceptor --+--> app of the newest certificate     new connections
 *                         '    app of an earlier one             its connections, until they end
 *
 * No connection ends and none is refused when the certificate changes. TLS 1.2 and 1.3, which is uWS's own choice.
 */
export class TlsApps {
  readonly #clock: Clock;
  readonly #configure: (app: TemplatedApp) => void;
  readonly #acceptor: TemplatedApp;
  readonly #earlier = new Set<Serving>();
  #newest: Serving;

  /**
   * `configure` adds routes and filters to each app.
   *
   * @throws {Error} uWS cannot use the files.
   */
  constructor(files: TlsFiles, clock: Clock, configure: (app: TemplatedApp) => void) {
    this.#clock = clock;
    this.#configure = configure;
    this.#acceptor = SSLApp(options(files));
    this.#newest = this.#serve(files);
    this.#acceptor.addChildAppDescriptor(this.#newest.descriptor);
  }

  listen(host: string, port: number, flags: number, done: (socket: us_listen_socket | false) => void): void {
    this.#acceptor.listen(host, port, flags, done);
  }

  /**
   * Connections that are accepted from now on get this certificate.
   *
   * @throws {Error} uWS cannot use the files; the previous certificate stays in force.
   */
  renew(files: TlsFiles): void {
    const newest = this.#serve(files);
    this.#acceptor.addChildAppDescriptor(newest.descriptor);
    this.#acceptor.removeChildAppDescriptor(this.#newest.descriptor);
    const replaced = this.#newest;
    this.#newest = newest;
    this.#earlier.add(replaced);
    this.#closeIfIdle(replaced);
  }

  /** Closes the listening socket and all connections. */
  close(): void {
    this.#acceptor.close();
    for (const { app } of [this.#newest, ...this.#earlier]) app.close();
    this.#earlier.clear();
  }

  #serve(files: TlsFiles): Serving {
    const app = SSLApp(options(files));
    const serving: Serving = { app, descriptor: app.getDescriptor(), open: 0 };
    app.filter((_, change) => {
      serving.open += Number(change) < 0 ? -1 : 1;
      if (serving.open === 0 && this.#earlier.has(serving)) this.#closeIfIdle(serving);
    });
    this.#configure(app);
    return serving;
  }

  #closeIfIdle(serving: Serving): void {
    this.#clock.after(GRACE_MS, () => {
      if (serving.open === 0 && this.#earlier.delete(serving)) serving.app.close();
    });
  }
}

function options({ keyFile, certFile }: TlsFiles): { key_file_name: string; cert_file_name: string } {
  return { key_file_name: keyFile, cert_file_name: certFile };
}
