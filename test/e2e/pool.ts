/** Two sidecars on Unix sockets, as deploy/systemd starts them, with the same key. */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { makeKey } from '../support/keys.js';
import { eventually } from '../support/processes.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { shortDir } from '../support/short-dir.js';

export type Name = 'a' | 'b';

interface Owner {
  teardown(fn: () => void | Promise<void>): void;
}

export interface PoolOptions {
  readonly seats?: number;
  readonly contextPerSeat?: number;
  /** Sections of both sidecars' configuration. */
  readonly config?: Readonly<Record<string, unknown>>;
}

/** The sidecars; they end with the test. */
export class Pool {
  readonly key: string;
  readonly #owner: Owner;
  readonly #dir: string;
  readonly #options: PoolOptions;
  readonly #running = new Map<Name, Sidecar>();

  private constructor(owner: Owner, options: PoolOptions) {
    this.#owner = owner;
    this.#options = options;
    this.#dir = shortDir(owner);
    // A proxy’s worker may run as another user.
    chmodSync(this.#dir, 0o755);
    for (const name of ['a', 'b'] as const) mkdirSync(dirname(this.socket(name)), { mode: 0o755 });
    const { key, stored } = makeKey({ entitlements: { production: { models: 'all' } } });
    this.key = key;
    writeFileSync(join(this.#dir, 'keys.json'), JSON.stringify({ version: 1, keys: [stored] }));
  }

  /** Resolves once both are ready. */
  static async start(t: Owner, options: PoolOptions = {}): Promise<Pool> {
    const pool = new Pool(t, options);
    await Promise.all([pool.begin('a'), pool.begin('b')]);
    return pool;
  }

  /** Starts a sidecar, again if it ended, in its own folder; resolves once it is ready. */
  async begin(name: Name): Promise<Sidecar> {
    const { seats = 2, contextPerSeat = 2048, config } = this.#options;
    const sidecar = await Sidecar.start(this.#owner, {
      config: {
        listen: { tcp: false, socket: this.socket(name), socketMode: '0666' },
        dataDir: join(this.#dir, name),
        environment: 'production',
        keys: { file: join(this.#dir, 'keys.json') },
        ...(await chatOnly(seats, contextPerSeat)),
        ...config,
      },
    });
    this.#running.set(name, sidecar);
    return sidecar;
  }

  sidecar(name: Name): Sidecar {
    const sidecar = this.#running.get(name);
    if (!sidecar) throw new Error(`${name} was not started`);
    return sidecar;
  }

  socket(name: Name): string {
    return join(this.#dir, `ra-sidecar@${name}`, 'http.sock');
  }

  /** Log lines of both sidecars about requests that used a model, or were refused one. */
  get requests(): Sidecar['lines'] {
    return (['a', 'b'] as const).flatMap((name) => this.sidecar(name).lines.filter(({ event }) => event === 'request'));
  }

  /** How often a request with this id was answered, by both sidecars together. */
  seen(id: string): number {
    return this.requests.filter(({ requestId }) => requestId === id).length;
  }

  /** Resolves once both are ready (again). */
  async ready(): Promise<void> {
    for (const sidecar of this.#running.values()) {
      const isReady = async (): Promise<boolean> => (await sidecar.readyz(sidecar.operatorsPort)).status === 200;
      await eventually('a sidecar is ready', isReady);
    }
  }

  /** The sidecars that are working on a request. */
  async busy(): Promise<Name | undefined> {
    for (const name of ['a', 'b'] as const) {
      if ((await this.sidecar(name).metric('ra_sidecar_seats_busy')) > 0) return name;
    }
    return undefined;
  }
}
