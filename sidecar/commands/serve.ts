import { execFile } from 'node:child_process';
import { renewDevelopmentKey } from '../access/keys.js';
import { metricsOf, startApp, type App } from '../app/app.js';
import { addressText } from '../http/addresses.js';
import { systemClock } from '../lib/clock.js';
import { VERSION } from '../lib/version.js';
import { isNotified, isStartedByNpm, type Config, type ModelConfig } from '../config/config.js';
import { makesDevelopmentKey, openIdentities, type Identities } from '../app/compose-identity.js';
import { filesOpenToOthers } from '../app/secret-files.js';
import type { Log } from '../telemetry/logger.js';
import { terminalClosed, whenParentEnds } from './hang-up.js';

/** Signals that start a drain; a second one ends the process at once. */
const DRAIN_SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/**
 * Two of the same signal within this time are one request, ms. `timeout make run` sends SIGTERM to the whole process group,
 * and make passes its own on to the process that is in the group too.
 */
const SAME_REQUEST_MS = 1000;

/** Reads keys, secrets and the certificate again, as is customary for services; drains if the terminal was closed. */
const RELOAD_SIGNAL = 'SIGHUP';

/** The exit code that shells use for an interrupted process. */
const EXIT_INTERRUPTED = 130;

/** systemd's own program: Node cannot open datagram Unix sockets. */
const NOTIFY = 'systemd-notify';

/** The longest time for the program, which writes one datagram, ms. */
const NOTIFY_MS = 5000;

/** Notifies the process manager that the sidecar is ready or ends. Never throws, and callers do not wait. */
interface ServiceManager {
  ready(): void;
  stopping(): void;
}

/** Without a process manager. */
const NO_SERVICE_MANAGER: ServiceManager = { ready: () => undefined, stopping: () => undefined };

/**
 * `ra-sidecar serve`: runs until a signal. Prints, once ready, the base URL, the models and example commands. Resolves
 * with the exit code. `source`: where the configuration comes from. `print` takes messages for people; the log is separate.
 */
export async function serve(config: Config, source: string, log: Log, print: (line: string) => void): Promise<number> {
  const { environment, keys } = config;
  log.info('starting', { version: VERSION, config: source });
  const metrics = metricsOf(config);
  const serviceManager = isNotified() ? systemd(log) : NO_SERVICE_MANAGER;
  const identities = await openIdentities(config, systemClock, log, metrics);
  const { scrapers, keysInForce } = identities;
  const warnOfOpenFiles = async (): Promise<void> => {
    for (const { file, problem } of await filesOpenToOthers(config))
      log.warn('secret file is open', { file, reason: problem });
  };
  await warnOfOpenFiles();
  let app: App | undefined;
  let onStop: (signal: NodeJS.Signals) => void = endStart;
  // A process of a container that is its first one ignores signals without a handler.
  for (const signal of DRAIN_SIGNALS) process.on(signal, () => onStop(signal));
  process.on(RELOAD_SIGNAL, () => {
    if (terminalClosed()) onStop(RELOAD_SIGNAL);
    else void Promise.all([identities.reload(), app?.reload(), warnOfOpenFiles()]);
  });
  if (isStartedByNpm())
    whenParentEnds(() => {
      log.info('npm has ended');
      onStop(RELOAD_SIGNAL);
    });
  // It may have been closed before there was a handler.
  if (terminalClosed()) endStart();
  // Writing beyond the file size limit must only fail that write, and not end the process.
  process.on('SIGXFSZ', () => undefined);
  try {
    app = await startApp(config, identities.identity, log, {
      metrics,
      ...(scrapers && { scrapers }),
      ...(keysInForce && { keysInForce }),
    });
    const { stop, stopped } = stopping(app, serviceManager);
    onStop = stop;
    identities.follow((account) => app?.forget(account));
    // Only after the data folder and the address are taken: the existing key may belong to a running sidecar.
    const key = makesDevelopmentKey(config) ? await renewedKey(keys.file, environment, identities, app) : undefined;
    const ended = await Promise.race([stopped, app.ready().then(() => undefined)]);
    if (ended !== undefined) return ended;
    serviceManager.ready();
    print(welcome(config, source, app, key));
    return await stopped;
  } finally {
    identities.close();
  }
}

/** Creates the development key and puts it in force. If that fails, nothing is left running. */
async function renewedKey(file: string, environment: string, identities: Identities, app: App): Promise<string> {
  try {
    const key = await renewDevelopmentKey(file, environment);
    await identities.reload();
    return key;
  } catch (error) {
    await app.drain();
    throw error;
  }
}

/** Ends a start at once: no request was accepted, and whatever is open is left as by a process that is killed. */
function endStart(): void {
  process.exit(0);
}

/** `stop` takes each signal and drains on the first one; `stopped` resolves with 0 when that is done. */
function stopping(
  app: App,
  serviceManager: ServiceManager,
): { readonly stop: (signal: NodeJS.Signals) => void; readonly stopped: Promise<number> } {
  let first: { readonly signal: NodeJS.Signals; readonly at: number } | undefined;
  let settle: (drained: Promise<number>) => void;
  const stopped = new Promise<number>((resolve) => (settle = resolve));
  const stop = (signal: NodeJS.Signals): void => {
    const at = systemClock.now();
    if (first?.signal === signal && at - first.at < SAME_REQUEST_MS) return;
    // A terminal that is closed during a drain does not cut it short.
    if (first !== undefined && signal === 'SIGHUP') return;
    if (first !== undefined) process.exit(EXIT_INTERRUPTED);
    first = { signal, at };
    serviceManager.stopping();
    settle(app.drain().then(() => 0));
  };
  return { stop, stopped };
}

/**
 * Notifies systemd over the socket in NOTIFY_SOCKET of this process's environment, which children inherit. A failure is
 * logged; without a notification systemd ends the start itself.
 */
function systemd(log: Log): ServiceManager {
  // The option --stopping does not exist in Debian 12's version.
  const notify = (state: 'READY=1' | 'STOPPING=1'): void => {
    execFile(NOTIFY, [state], { timeout: NOTIFY_MS }, (error) => {
      if (error) log.warn('systemd was not notified', { reason: state });
    });
  };
  return { ready: () => notify('READY=1'), stopping: () => notify('STOPPING=1') };
}

/** The text that is printed once the sidecar is ready. Its curl commands work when pasted. */
function welcome(config: Config, source: string, app: App, key: string | undefined): string {
  const { tcp, socket } = config.listen;
  const scheme = config.tls.keyFile === undefined ? 'http' : 'https';
  const base = tcp ? `${scheme}://${addressText(config.listen.host, app.publicPort)}/v1` : 'http://localhost/v1';
  const lines = [
    '',
    `ra-sidecar is ready at ${base}${tcp ? '' : ` over ${socket ?? ''}`}`,
    `configuration:        ${source}`,
    ...(config.contract === 'strict'
      ? ['contract:             strict; for agent frameworks and structured outputs set RA_CONTRACT=compatible']
      : ['contract:             compatible']),
    `operators' listener:  http://${addressText(config.operators.host, app.operatorsPort)}/metrics`,
    ...config.models.map(
      ({ id, kind, seats, replicas, load }) =>
        `model:                ${id} (${kind}, ${seatsText(seats, replicas)}${load === 'lazy' ? ', loaded at the first request' : ''})`,
    ),
  ];
  if (key === undefined) return [...lines, ''].join('\n');
  const where = tcp ? base : `--unix-socket '${socket ?? ''}' ${base}`;
  const chat = config.models.find(({ kind }) => kind === 'chat')?.id;
  const decision = config.models.find(({ kind }) => kind === 'decision')?.id;
  lines.push(`development key:      ${key}   (new at every start; only its hash is stored)`);
  if (chat !== undefined) lines.push('', curl(where, 'chat/completions', key, chatExample(chat)));
  if (decision !== undefined) lines.push('', curl(where, 'decisions', key, decisionExample(decision)));
  return [...lines, ''].join('\n');
}

function seatsText(seats: number, replicas: ModelConfig['replicas']): string {
  if (replicas === 1) return `${seats} seats`;
  if (replicas === 'auto') return `${seats} seats on each device`;
  if (typeof replicas === 'number') return `${replicas} replicas of ${seats} seats`;
  const all = replicas.reduce((sum, replica) => sum + (replica.seats ?? seats), 0);
  return `${replicas.length} replicas with ${all} seats together`;
}

function curl(base: string, path: string, key: string, body: object): string {
  return `curl -N ${base}/${path} -H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'`;
}

function chatExample(model: string): object {
  return { model, stream: true, max_tokens: 64, messages: [{ role: 'user', content: 'Hello, who are you?' }] };
}

function decisionExample(model: string): object {
  const question = { id: 'refund', type: 'yes_no', question: 'Does the customer ask for a refund?' };
  return { model, input: 'I was charged twice. Please send the second payment back.', questions: [question] };
}
