import { execFile } from 'node:child_process';
import { KeyStore } from '../access/keys.js';
import { forkChildren, metricsOf, startApp, type App } from '../app/app.js';
import { addressText } from '../http/addresses.js';
import { systemClock } from '../lib/clock.js';
import { VERSION } from '../lib/version.js';
import { isNotified, isStartedByNpm, type Config, type ModelConfig } from '../config/config.js';
import { Closers } from '../app/closers.js';
import { filesOpenToOthers, makesDevelopmentKey, openIdentities, type Identities } from '../app/identities.js';
import type { Log } from '../telemetry/logger.js';
import { terminalClosed, whenParentEnds } from './hang-up.js';

/** Signals that start a drain; a second one ends the process at once. */
const DRAIN_SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/**
 * Two of the same signal within this time are one request, ms. `timeout make run` sends SIGTERM to the whole process group, and make passes
 * its own on to the process that is in the group too.
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
 * with the exit code, or rejects if the start fails; either way all that was opened is closed. `source`: where the
 * configuration comes from. `print` takes messages for people; the log is separate.
 */
export async function serve(config: Config, source: string, log: Log, print: (line: string) => void): Promise<number> {
  log.info('starting', { version: VERSION, config: source });
  const closers = new Closers(systemClock, log);
  const running: Running = { app: undefined, identities: undefined };
  const serviceManager = isNotified() ? systemd(log) : NO_SERVICE_MANAGER;
  const stop = new Stop(async () => {
    serviceManager.stopping();
    await (running.app?.drain() ?? closers.close());
  });
  const forget = followSignals(stop, log, () => {
    void Promise.all([running.identities?.reload(), running.app?.reload(), warnOfOpenFiles(config, log)]);
  });
  const started = start(config, log, closers, running).then(
    async (key) => {
      serviceManager.ready();
      if (running.app) print(welcome(config, source, running.app, key));
      return await stop.done;
    },
    async (fault: unknown) => {
      // A stop during the start closes what the start uses.
      if (stop.asked) return await stop.done;
      throw fault;
    },
  );
  try {
    return await Promise.race([stop.done, started]);
  } finally {
    await closers.close();
    forget();
  }
}

/** What signals act on; undefined while it is not open. */
interface Running {
  app: App | undefined;
  identities: Identities | undefined;
}

/** Resolves once every model is ready, with the development key, if one was made. */
async function start(config: Config, log: Log, closers: Closers, running: Running): Promise<string | undefined> {
  const { environment, keys } = config;
  const metrics = metricsOf(config);
  const children = await forkChildren(config, log, closers, { metrics });
  const identities = await openIdentities(config, metrics, { clock: systemClock, log, closers });
  running.identities = identities;
  await warnOfOpenFiles(config, log);
  const { identity, scrapers, keysFile } = identities;
  const app = await startApp(config, identity, log, { closers, metrics, children, scrapers, keysFile });
  running.app = app;
  identities.follow((account) => app.forget(account));
  let key: string | undefined;
  // Only after the data folder and the address are taken: the existing key may belong to a running sidecar.
  if (makesDevelopmentKey(config)) {
    key = await new KeyStore(keys.file).renewDevelopmentKey(environment);
    await identities.reload();
  }
  await app.ready();
  return key;
}

async function warnOfOpenFiles(config: Config, log: Log): Promise<void> {
  for (const { file, problem } of await filesOpenToOthers(config))
    log.warn('secret file is open', { file, reason: problem });
}

/** Ends the process once: on the first signal with all that is open closed, on another one at once. */
class Stop {
  readonly #end: () => Promise<void>;
  #first: { readonly signal: NodeJS.Signals; readonly at: number } | undefined;
  #settle!: (code: Promise<number>) => void;

  /** Resolves with the exit code once what was asked for is done. */
  readonly done = new Promise<number>((resolve) => (this.#settle = resolve));

  constructor(end: () => Promise<void>) {
    this.#end = end;
  }

  get asked(): boolean {
    return this.#first !== undefined;
  }

  by(signal: NodeJS.Signals): void {
    const at = systemClock.now();
    if (this.#first?.signal === signal && at - this.#first.at < SAME_REQUEST_MS) return;
    // A terminal that is closed during a drain does not cut it short.
    if (this.#first !== undefined && signal === RELOAD_SIGNAL) return;
    if (this.#first !== undefined) process.exit(EXIT_INTERRUPTED);
    this.#first = { signal, at };
    this.#settle(this.#end().then(() => 0));
  }
}

/** Follows this process's signals and its terminal. Returns what ends that. */
function followSignals(stop: Stop, log: Log, reload: () => void): () => void {
  const stops = (signal: NodeJS.Signals): void => stop.by(signal);
  const hungUp = (): void => (terminalClosed() ? stop.by(RELOAD_SIGNAL) : reload());
  const endure = (): void => undefined;
  // A process of a container that is its first one ignores signals without a handler.
  for (const signal of DRAIN_SIGNALS) process.on(signal, stops);
  process.on(RELOAD_SIGNAL, hungUp);
  // Writing beyond the file size limit must only fail that write, and not end the process.
  process.on('SIGXFSZ', endure);
  const endLook = isStartedByNpm()
    ? whenParentEnds(() => {
        log.info('npm has ended');
        stop.by(RELOAD_SIGNAL);
      })
    : undefined;
  // It may have been closed before there was a handler.
  if (terminalClosed()) stop.by(RELOAD_SIGNAL);
  return () => {
    for (const signal of DRAIN_SIGNALS) process.off(signal, stops);
    process.off(RELOAD_SIGNAL, hungUp);
    process.off('SIGXFSZ', endure);
    endLook?.();
  };
}

/**
 * Notifies systemd over the socket in NOTIFY_SOCKET of this process's environment, which children inherit. A failure is logged; without a
 * notification systemd ends the start itself.
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
  if (chat !== undefined && tcp) lines.push('', ...clientLines(config, base, key));
  return [...lines, ''].join('\n');
}

/** An agent's first prompt has some 16,000 tokens, and its conversation grows (docs/clients.md). */
const AGENT_CONTEXT = 32_768;

/** Commands that point clients at this sidecar. None of them asks a server for the length of a context. */
export function clientLines(
  { contract, models }: Pick<Config, 'contract' | 'models'>,
  base: string,
  key: string,
): string[] {
  const openai = `export OPENAI_BASE_URL=${base} OPENAI_API_KEY=${key}   # OpenAI clients`;
  if (contract === 'strict') return [openai];
  const model = models.find(({ kind, contextPerSeat }) => kind === 'chat' && contextPerSeat >= AGENT_CONTEXT);
  if (!model)
    return [
      openai,
      '',
      `# coding agents need a chat model with a contextPerSeat of ${AGENT_CONTEXT} or more: docs/clients.md`,
    ];
  const { id, contextPerSeat } = model;
  const provider = `model_providers.ra={name="ra",base_url="${base}",env_key="OPENAI_API_KEY",wire_api="responses"}`;
  const codex =
    `OPENAI_API_KEY=${key} codex -m ${id} -c '${provider}' -c model_provider=ra ` +
    `-c model_context_window=${contextPerSeat}`;
  const claudeCode =
    `ANTHROPIC_BASE_URL=${base.replace(/\/v1$/, '')} ANTHROPIC_AUTH_TOKEN=${key} ANTHROPIC_MODEL=${id} ` +
    `CLAUDE_CODE_MAX_CONTEXT_TOKENS=${contextPerSeat} claude`;
  return [openai, '', codex, '', claudeCode];
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
