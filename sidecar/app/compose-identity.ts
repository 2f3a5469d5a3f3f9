/** Composes authentication from the settings: a gateway in front first, then a keys file or an authorizer. */
import { AuthorizerClient } from '../access/authorizer-client.js';
import { AuthorizerIdentity } from '../access/authorizer-identity.js';
import { GatewayIdentity } from '../access/gateway-identity.js';
import type { Identity } from '../access/identity.js';
import { WatchedKeys, type KeysInForce } from '../access/key-file-watch.js';
import { SecretFile } from '../lib/secret-file.js';
import type { Clock } from '../lib/clock.js';
import type { Config } from '../config/config.js';
import { isLoopback } from '../config/checks.js';
import type { Scrapers } from '../api/operators.js';
import type { AuthorizerMetrics } from '../telemetry/access-metrics.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';

export interface Identities {
  readonly identity: Identity;
  /** Who may read all metrics on the public listener; undefined: no caller. */
  readonly scrapers: Scrapers | undefined;
  /** Which content of the keys file is in force; undefined: no keys file is used. */
  readonly keysInForce: (() => Promise<KeysInForce>) | undefined;
  /** `closed` is called with each account that is frozen or has no key any more, from now on. One listener. */
  follow(closed: (account: string) => void): void;
  /** Reloads keys and secrets now. Problems are logged. */
  reload(): Promise<void>;
  /** Closes connections and timers. Idempotent. */
  close(): void;
}

/** The metrics that are used here. */
type Counted = Pick<Metrics, 'keys' | 'authorizer'>;

/**
 * Whether `serve` makes a development key, which may call everything: only in the development environment, and where no
 * other machine can reach the sidecar.
 */
export function makesDevelopmentKey({ access, environment, listen }: Config): boolean {
  const reachedFromHere = !listen.tcp || isLoopback(listen.host);
  return environment === 'development' && access.mode === 'keys' && reachedFromHere;
}

/** Opens the configured files. Rejects with one line if a file is invalid; then none is left open. */
export async function openIdentities(config: Config, clock: Clock, log: Log, metrics: Counted): Promise<Identities> {
  const { access, gateway, environment, fleet } = config;
  const secrets: SecretFile[] = [];
  const openSecrets = async (file: string): Promise<SecretFile> => {
    const opened = await SecretFile.open(file, clock, {
      changed: () => log.info('secrets read anew', { file }),
      unusable: (reason) => log.error('secrets cannot be read, the previous ones stay in force', { file, reason }),
    });
    secrets.push(opened);
    return opened;
  };
  let client: AuthorizerClient | undefined;
  let closed: (account: string) => void = () => undefined;
  let keys: WatchedKeys | undefined;
  const close = (): void => {
    keys?.close();
    for (const opened of secrets) opened.close();
    client?.close();
  };
  try {
    let others: Identity | undefined;
    if (access.mode === 'keys') {
      others = keys = await openKeys(config, clock, log, {
        loaded: () => metrics.keys.loaded(),
        refused: () => metrics.keys.refused(),
        closed: (account) => closed(account),
      });
    }
    if (access.mode === 'authorizer') {
      client = await openAuthorizer(config, clock, openSecrets);
      others = authorizerIdentity(config, clock, log, client, metrics.authorizer, (account) => closed(account));
    }
    const known = gateway.secretFile === undefined ? undefined : await openSecrets(gateway.secretFile);
    const scrapers = fleet.scrapeSecretFile === undefined ? undefined : await openSecrets(fleet.scrapeSecretFile);
    const watched = keys;
    return {
      scrapers,
      keysInForce: watched && (() => watched.inForce()),
      follow: (listener) => (closed = listener),
      identity: known
        ? new GatewayIdentity({ secrets: known, environment, class: gateway.class, ...(others && { others }) })
        : (others ?? NO_IDENTITY),
      reload: async () => {
        await Promise.all([keys?.reload(), ...secrets.map((opened) => opened.reload())]);
      },
      close,
    };
  } catch (error) {
    close();
    throw error;
  }
}

/** For settings that the checks reject: a gateway without a secret. */
const NO_IDENTITY: Identity = { resolve: () => Promise.resolve({ kind: 'denied', code: 'invalid_api_key' }) };

function openKeys(
  config: Config,
  clock: Clock,
  log: Log,
  hooks: {
    readonly loaded: () => void;
    readonly refused: () => void;
    readonly closed: (account: string) => void;
  },
): Promise<WatchedKeys> {
  const { keys, environment } = config;
  const { file } = keys;
  return WatchedKeys.open(
    clock,
    { ...keys, environment, development: makesDevelopmentKey(config) },
    {
      loaded: (count) => {
        log.info('keys loaded', { file, count });
        hooks.loaded();
      },
      closed: (accounts) => accounts.forEach(hooks.closed),
      refused: (reason) => {
        log.error('keys file refused, the last valid keys stay in force', { file, reason });
        hooks.refused();
      },
    },
  );
}

async function openAuthorizer(
  { authorizer }: Config,
  clock: Clock,
  openSecrets: (file: string) => Promise<SecretFile>,
): Promise<AuthorizerClient> {
  const { url = '', socket, secretFile, timeoutMs, concurrency } = authorizer;
  const own = secretFile === undefined ? undefined : await openSecrets(secretFile);
  return new AuthorizerClient(clock, {
    url,
    timeoutMs,
    connections: concurrency,
    ...(socket !== undefined && { socket }),
    ...(own && { secret: () => own.first }),
  });
}

function authorizerIdentity(
  { authorizer, environment }: Config,
  clock: Clock,
  log: Log,
  client: AuthorizerClient,
  metrics: AuthorizerMetrics,
  frozen: (account: string) => void,
): Identity {
  const { send, concurrency, cache, breaker, timeoutMs } = authorizer;
  const identity = new AuthorizerIdentity(clock, {
    client,
    environment,
    send,
    concurrency,
    cache,
    events: {
      lookedUp: (result) => metrics.lookedUp(result),
      stale: () => metrics.stale(),
      asked: (outcome, ms) => metrics.asked(outcome, ms),
      frozen,
    },
    breaker: {
      ...breaker,
      trialMs: timeoutMs,
      opened: (reason, retryAfterMs) => log.warn('authorizer is left alone', { reason, retryAfterMs }),
      closed: () => log.info('authorizer answers again'),
    },
  });
  metrics.breakerState = () => identity.breakerState;
  return identity;
}
