/** The settings of the store: the PostgreSQL database in which a fleet's sidecars share their accounts (docs/store.md). */
import { integer, milliseconds, path, section, text } from './setting.js';

export const storeSchema = section({
  url: text(
    'PostgreSQL database that sidecars share ([store.md](store.md)): `postgresql://USER@HOST:PORT/DATABASE`; a Unix socket’s folder is a HOST with `%2F` for `/`. `?sslmode=verify-full` requires TLS.',
    {
      defaultText: 'none: each sidecar counts for itself',
      pattern: '^postgres(ql)?://[^\\s#]+$',
      maxLength: 2048,
    },
  ),
  passwordFile: path('File with the user’s password, read again for each connection.', {
    defaultText: 'none: no password is sent',
  }),
  caFile: path('File with the authorities that may sign the database’s certificate, PEM. TLS is then required.', {
    defaultText: 'none: with `sslmode=verify-full` Node’s own',
  }),
  connections: integer('Connections of one sidecar to the database, besides one or two of its lease.', {
    default: 8,
    minimum: 1,
    maximum: 1000,
    unit: 'connections',
  }),
  timeoutMs: integer('How long a request waits for the store, with the wait for a connection.', {
    default: 250,
    minimum: 250,
    maximum: 10_000,
    unit: 'ms',
  }),
  leaseMs: milliseconds('How long the store counts the requests of a sidecar that it hears nothing of.', {
    default: 10_000,
    minimum: 3000,
    maximum: 600_000,
  }),
  pollMs: milliseconds('How often the store is asked for changed keys and prices, of which it also notifies.', {
    default: 1000,
    minimum: 100,
  }),
  staleMs: milliseconds('How long keys of the store are accepted that it has not confirmed. 0: for ever.', {
    default: 3_600_000,
  }),
  whenDown: text(
    'Limits of keys while the store does not answer (docs/store.md#while-the-store-does-not-answer). `share`: each sidecar applies its share of them.',
    { enum: ['refuse', 'share'], default: 'refuse' },
  ),
});

/** What a `store.url` says. */
export interface StoreAddress {
  readonly user: string;
  /** A name, an address, or the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly tls: boolean;
}

const DEFAULT_PORT = 5432;

/** The parts of a `store.url`; undefined if one is missing, or it has a password or parameters besides `sslmode=verify-full`. */
export function storeAddressOf(url: string): StoreAddress | undefined {
  if (!URL.canParse(url)) return undefined;
  const { username, password, hostname, port, pathname, searchParams } = new URL(url);
  const [sslmode, ...others] = [...searchParams];
  if (password !== '' || others.length > 0) return undefined;
  if (sslmode !== undefined && !(sslmode[0] === 'sslmode' && sslmode[1] === 'verify-full')) return undefined;
  const database = decoded(pathname.slice(1));
  const [user, host] = [decoded(username), decoded(hostname.replace(/^\[(.*)\]$/, '$1'))];
  if (!user || !host || !database) return undefined;
  return { user, host, database, port: port === '' ? DEFAULT_PORT : Number(port), tls: sslmode !== undefined };
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}
