/** Who may call: a gateway in front first, then a keys file or an authorizer. And the files that hold secrets. */
import { rm, stat } from 'node:fs/promises';
import { AuthorizerClient } from '../access/authorizer-client.js';
import { AuthorizerIdentity } from '../access/authorizer.js';
import { GatewayIdentity } from '../access/gateway-identity.js';
import type { Identity } from '../access/identity.js';
import { WatchedKeys } from '../access/key-identity.js';
import { keysFileOf, type Config } from '../config/config.js';
import { isLoopback } from '../config/checks.js';
import { FileProblem, UnreadFile } from '../lib/checked-file.js';
import type { Clock } from '../lib/clock.js';
import { SecretFile } from '../lib/secret-file.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { Closers } from './closers.js';

export type Identities = Readonly<Awaited<ReturnType<typeof openIdentities>>>;

/** What opened files and connections use. They are added to `closers`. */
export interface Opening {
  readonly clock: Clock;
  readonly log: Log;
  readonly closers: Closers;
}

type Counted = Pick<Metrics, 'keys' | 'authorizer'>;

/**
 * Whether `serve` makes a development key, which may call everything: only in the development environment, where no other machine can reach
 * the sidecar, and where keys are in a file: those of a store are used by other sidecars too.
 */
export function makesDevelopmentKey({ access, environment, keys, listen }: Config): boolean {
  const reachedFromHere = !listen.tcp || isLoopback(listen.host);
  const isOwn = access.mode === 'keys' && keys.source === 'file';
  return environment === 'development' && isOwn && reachedFromHere;
}

/** Opens and follows the configured files. Rejects with one line if a file is invalid. */
export async function openIdentities(config: Config, metrics: Counted, opening: Opening) {
  const { access, gateway, environment, fleet, authorizer } = config;
  let closed: (account: string) => void = () => undefined;
  const reloads: (() => Promise<void>)[] = [];
  const secretsIn = async (file: string | undefined): Promise<SecretFile | undefined> => {
    const secrets = file === undefined ? undefined : await openSecrets(file, opening);
    if (secrets) reloads.push(() => secrets.reload());
    return secrets;
  };
  let keys: WatchedKeys | undefined;
  let others: Identity | undefined;
  if (access.mode === 'keys') {
    const opened = (others = keys = await openKeys(config, metrics, opening, (account) => closed(account)));
    reloads.push(() => opened.reload());
  }
  if (access.mode === 'authorizer') {
    const own = await secretsIn(authorizer.secretFile);
    others = openAuthorizer(config, metrics, opening, own, (account) => closed(account));
  }
  const known = await secretsIn(gateway.secretFile);
  const scrapers = await secretsIn(fleet.scrapeSecretFile);
  const identity: Identity = known
    ? new GatewayIdentity({ secrets: known, environment, class: gateway.class, ...(others && { others }) })
    : (others ?? NO_IDENTITY);
  return {
    identity,
    /** Who may read all metrics on the public listener; undefined if no caller may. */
    scrapers,
    /** Undefined if no keys file is used. */
    keysFile: keys,
    /** `listener` is called with each account that is frozen or has no key any more, from now on. One listener. */
    follow: (listener: (account: string) => void) => (closed = listener),
    /** Reloads keys and secrets now. Problems are logged. */
    reload: async () => {
      await Promise.all(reloads.map((reload) => reload()));
    },
  };
}

/** For settings that the checks reject: a gateway without a secret. */
const NO_IDENTITY: Identity = { resolve: () => Promise.resolve({ kind: 'denied', code: 'invalid_api_key' }) };

/** Opens and follows a file of secrets. `changed` is called after other ones are in force. Rejects with one line if it is invalid. */
export async function openSecrets(
  file: string,
  { clock, log, closers }: Opening,
  changed: () => void = () => undefined,
): Promise<SecretFile> {
  const secrets = await SecretFile.open(file, clock, {
    changed: () => {
      log.info('secrets read anew', { file });
      changed();
    },
    unusable: (reason) => log.error('secrets cannot be read, the previous ones stay in force', { file, reason }),
  });
  closers.add({ name: `secrets in ${file}`, close: () => secrets.close() });
  return secrets;
}

async function openKeys(
  config: Config,
  metrics: Counted,
  { clock, log, closers }: Opening,
  closed: (account: string) => void,
): Promise<WatchedKeys> {
  const { keys, environment } = config;
  const file = keysFileOf(config);
  const openFile = (): Promise<WatchedKeys> =>
    WatchedKeys.open(
      clock,
      { file, pollMs: keys.pollMs, environment, development: makesDevelopmentKey(config) },
      {
        loaded: (count) => {
          log.info('keys loaded', { file, count });
          metrics.keys.loaded();
        },
        closed: (accounts) => accounts.forEach(closed),
        refused: (reason) => {
          log.error('keys file refused, the last valid keys stay in force', { file, reason });
          metrics.keys.refused();
        },
      },
    );
  const watched = await openFile().catch(async (error: unknown) => {
    if (keys.source !== 'store' || !(error instanceof FileProblem) || error instanceof UnreadFile) throw error;
    // The store has another one.
    log.error('copy of the store cannot be used, it is removed', { file, reason: error.problem });
    await rm(file);
    return await openFile();
  });
  // Until the store is open, which tells.
  if (keys.source === 'store') watched.isCurrent = () => false;
  closers.add({ name: 'keys file', close: () => watched.close() });
  return watched;
}

/** `own`: the secrets with which the sidecar authenticates itself. */
function openAuthorizer(
  { authorizer, environment }: Config,
  { authorizer: metrics }: Counted,
  { clock, log, closers }: Opening,
  own: SecretFile | undefined,
  frozen: (account: string) => void,
): Identity {
  const { url = '', socket, timeoutMs, send, concurrency, cache, breaker } = authorizer;
  const client = new AuthorizerClient(clock, {
    url,
    timeoutMs,
    connections: concurrency,
    ...(socket !== undefined && { socket }),
    ...(own && { secret: () => own.first }),
  });
  closers.add({ name: 'authorizer', close: () => client.close() });
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

/** Permission of users other than the owner and the group to read or to write. */
const OTHERS = 0o006;

/** A secret file that every user of this machine may read or write. */
export interface OpenFile {
  readonly file: string;
  /** For example `other users can read it (mode 0644)`. */
  readonly problem: string;
}

/** The configured files with secrets that other users may read or write. A file that does not exist is none of them. */
export async function filesOpenToOthers(config: Config): Promise<OpenFile[]> {
  const found = await Promise.all(secretFiles(config).map(async (file) => ({ file, mode: await modeOf(file) })));
  return found.flatMap(({ file, mode }) => {
    if ((mode & OTHERS) === 0) return [];
    const may = [...((mode & 0o004) === 0 ? [] : ['read']), ...((mode & 0o002) === 0 ? [] : ['write'])];
    return [{ file, problem: `other users can ${may.join(' and ')} it (mode 0${(mode & 0o777).toString(8)})` }];
  });
}

function secretFiles(config: Config): readonly string[] {
  const { nats, secretFile } = config.delivery;
  const named = [
    config.access.mode === 'keys' ? keysFileOf(config) : undefined,
    config.tls.keyFile,
    config.operators.secretFile,
    config.gateway.secretFile,
    config.authorizer.secretFile,
    config.fleet.scrapeSecretFile,
    config.telemetry.otlp.headersFile,
    config.store.passwordFile,
    secretFile,
    nats.secretFile,
    nats.keyFile,
    ...config.models.map(({ engine }) => engine.secretFile),
  ];
  return [...new Set(named.filter((file) => file !== undefined))];
}

/** 0 if it cannot be looked at: its reader reports that. */
async function modeOf(file: string): Promise<number> {
  return await stat(file).then(
    ({ mode }) => mode,
    () => 0,
  );
}
