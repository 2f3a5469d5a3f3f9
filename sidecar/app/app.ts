/** The composition root: creates and connects all parts. */
import { leaveMemoryOutOfDumps } from '../../engine/protocol/no-core-dump.js';
import '../../engine/protocol/v8-flags.js';
import { FailedKeyLimit } from '../access/failed-keys.js';
import { IdempotencyKeys } from '../access/idempotency.js';
import type { Identity } from '../access/identity.js';
import { RequestLimits } from '../access/limits.js';
import { TokenQuotas } from '../access/quotas.js';
import { systemClock } from '../lib/clock.js';
import type { Config } from '../config/config.js';
import { keepDescriptors } from './descriptor-reserve.js';
import { connectionBounds, descriptorLimit } from './descriptors.js';
import { SeatBoard, type Services } from '../api/services.js';
import { ENGINE } from './compose-engine.js';
import { openBilling } from './compose-billing.js';
import { openOtlpExport } from './compose-otlp.js';
import { replicasOf } from './compose-replicas.js';
import { openTls } from './compose-tls.js';
import { openUsage } from './compose-usage.js';
import { hostModels, modelFiles, reportPrompts } from './compose-models.js';
import { FLUSH_MS, InFlight, taken } from './in-flight.js';
import { listen, withSettings } from './listen.js';
import { OpenParts } from './open-parts.js';
import { openOperators, type OperatorsView } from './operators-server.js';
import { WeightFiles } from '../engine-client/weight-files.js';
import type { Overrides } from './overrides.js';
import { openPrompts } from '../prompts/lanes.js';
import { warmUp } from '../prompts/warm-up.js';
import { Readiness } from './readiness.js';
import { reloader } from './reload.js';
import { promptModelsOf } from './prompt-models.js';
import { publicServer } from './public-server.js';
import { templateOf } from './model-template.js';
import type { Log } from '../telemetry/logger.js';
import { Metrics } from '../telemetry/metrics.js';
import { Spool } from '../usage/spool.js';

/** Names of the prompt host and of credit in the readiness; a model's id cannot contain a space. */
const PROMPTS = 'prompt host';
const CREDIT = 'prepaid credit';

export interface App {
  /** Ports in use; 0: the public listener is only a Unix socket. */
  readonly publicPort: number;
  readonly operatorsPort: number;
  /** Resolves once every model is ready; rejects with one line if a model can never be. */
  ready(): Promise<void>;
  /** Reads the certificate's files now, if there are some. Problems are logged. */
  reload(): Promise<void>;
  /** Nothing is kept in engines and vision processes that requests of this account left; where accounts share prefixes, nothing of any. */
  forget(account: string): void;
  /**
   * /readyz answers 503; after a notice new work is refused, and each answer to callers ends its connection; running
   * requests may finish within the configured time, and are then ended with an error. Resolves when everything is
   * closed. Idempotent.
   */
  drain(): Promise<void>;
}

/** Metrics for the configured models. */
export function metricsOf({ models }: Pick<Config, 'models'>): Metrics {
  return new Metrics(models.map(({ id }) => id));
}

/** Starts everything. Rejects if an address or a file cannot be used; then nothing is left running or open. */
export async function startApp(config: Config, identity: Identity, log: Log, overrides: Overrides = {}): Promise<App> {
  // Before processes are started, which inherit it.
  leaveMemoryOutOfDumps();
  const parts = new OpenParts();
  try {
    return await openApp(config, identity, log, overrides, parts);
  } catch (error) {
    await parts.close().catch((fault: unknown) => log.error('failed start not closed', { fault }));
    throw error;
  }
}

/** Opens all parts, and adds each one to `parts`, whose owner closes them if this rejects. */
async function openApp(
  config: Config,
  identity: Identity,
  log: Log,
  overrides: Overrides,
  parts: OpenParts,
): Promise<App> {
  const templates = new Map(config.models.map((model) => [model.id, templateOf(model)]));
  const { metrics = metricsOf(config), spool: spoolStandIn, scrapers, engineEntry = ENGINE, visionEntry } = overrides;
  /** Each is set once and never reset. */
  const lifecycle = { leaving: false, draining: false, promptsReady: false };
  const board = new SeatBoard();
  const shared = connectionBounds(config, descriptorLimit());
  if (shared.kind === 'short') throw new Error(shared.line);
  const reserve = keepDescriptors(log);
  parts.add('listeners', () => reserve.close());
  const deps = { config, clock: systemClock, metrics, log, connections: shared.bounds, reserve };
  // The operators' listener opens first: reading a long spool takes time, and liveness probes must succeed meanwhile.
  let view: OperatorsView = {
    leaving: () => lifecycle.leaving,
    spool: { health: { ok: true }, append: () => undefined, sync: () => Promise.resolve(), revise: () => false },
    credit: undefined,
    models: new Map(),
    board,
    promptHosts: () => [],
    ...(overrides.keysInForce && { keysInForce: overrides.keysInForce }),
  };
  const tls = await openTls(config, systemClock, log);
  parts.add('listeners', () => tls.close());
  const operatorsListener = await openOperators(deps, () => view);
  parts.add('listeners', () => operatorsListener.close());
  const operatorsAt = await withSettings(
    'operators.host and operators.port',
    operatorsListener.listen(config.operators.host, config.operators.port),
  );
  log.info('operators listening', { host: config.operators.host, port: operatorsAt.port });
  const files = modelFiles(config);
  const plans = await replicasOf(config, files);
  const billing = await openBilling({ config, clock: systemClock, metrics: metrics.credit, log });
  parts.add('billing', () => billing.close());
  const { spool, prune, closeSpool } = spoolStandIn
    ? { spool: spoolStandIn, prune: () => Promise.resolve(), closeSpool: () => Promise.resolve() }
    : await openUsage(config, metrics, log, () => billing.keepFrom());
  parts.add('spool', closeSpool);
  const otlp = await openOtlpExport(config, metrics, log);
  parts.add('otlp', () => otlp.close());
  const readiness = new Readiness([
    PROMPTS,
    CREDIT,
    ...config.models.filter(({ load }) => load === 'eager').map(({ id }) => id),
  ]);

  const promptModels = promptModelsOf(config, files, plans, templates);
  const prompts = (overrides.makePrompts ?? openPrompts)({
    ...config.prompts,
    inlineBytes: config.bodies.inlineBytes,
    models: promptModels,
    clock: systemClock,
    hooks: {
      restart: (why, delayMs, lane) => {
        metrics.processes.promptHostRestarted();
        log.warn('prompt host restarts', { lane, reason: why, retryAfterMs: delayMs });
      },
    },
  });
  parts.add('hosts', () => prompts.close());
  const weights = new WeightFiles(config.engine.fileSilenceMs);
  const entries = { entry: engineEntry, weights, visionEntry };
  const models = hostModels(config, files, plans, templates, entries, { metrics, readiness, log });
  for (const { engine, vision } of models.values()) {
    parts.add('engines', () => engine.close());
    if (vision) parts.add('hosts', () => vision.close());
  }
  const reload = reloader({ models, files: weights, prompts, promptModels, log });
  const services: Services = {
    clock: systemClock,
    date: () => new Date(),
    random: Math.random,
    identity: new FailedKeyLimit(systemClock, identity, config.keys.failuresPerMinute),
    prompts,
    models,
    spool,
    pricing: billing.pricing,
    credit: billing.credit,
    metrics,
    board,
    log,
    ...(otlp.tracing && { tracing: otlp.tracing }),
    idempotency: new IdempotencyKeys(systemClock, config.idempotency),
    keyLimits: new RequestLimits(systemClock, config.limits),
    quotas: new TokenQuotas(() => new Date()),
    limits: {
      chatBytes: config.bodies.chatBytes,
      inlineBytes: config.bodies.inlineBytes,
      keepAliveMs: config.stream.keepAliveMs,
      streamIntervalMs: config.stream.intervalMs,
      timeoutMs: config.request.timeoutMs,
    },
    contract: config.contract,
    isolateDecisions: config.decisions.isolate,
    promptHosts: () => prompts.states,
    promptsReady: () => lifecycle.promptsReady,
    leaving: () => lifecycle.leaving,
    draining: () => lifecycle.draining,
  };

  const inFlight = new InFlight();
  view = { ...view, ...services, reload, promptHosts: () => prompts.states };
  const publicListener = publicServer(deps, services, inFlight, { scrapers, tls: tls.files });
  parts.add('listeners', () => publicListener.close());
  tls.follow(publicListener);
  metrics.http.bufferedBytes = () => publicListener.bufferedBytes;
  const publicPort = await listen(publicListener, config.listen, log);
  for (const { engine, vision } of models.values()) {
    engine.start();
    // Of a lazy model with the first image.
    if (!engine.onDemand) vision?.start();
  }
  void billing.begin(spool instanceof Spool ? spool : undefined).then((problem) => {
    if (problem === undefined) readiness.up(CREDIT);
    else readiness.never(problem);
    // Until now the whole spool was needed, so nothing could be deleted.
    void prune();
  });
  void prompts.ready().then(async (found) => {
    // If a drain closes the hosts first, the start has not failed.
    if (services.leaving()) return;
    const problem = await reportPrompts(found, models, log);
    if (problem !== undefined) {
      readiness.never(problem);
      return;
    }
    const form = config.contract === 'compatible' ? 'compatible' : 'chat';
    await warmUp(prompts, found.kind === 'ready' ? found.models : [], form, config.bodies.inlineBytes);
    if (services.leaving()) return;
    lifecycle.promptsReady = true;
    readiness.up(PROMPTS);
  });
  let drained: Promise<void> | undefined;
  return {
    publicPort,
    operatorsPort: operatorsAt.port,
    ready: () => readiness.all(),
    reload: () => tls.reload(),
    forget: (account) => {
      for (const { engine, vision, closeScope } of models.values()) {
        const scope = closeScope(account);
        engine.forget(scope);
        vision?.forget(scope);
      }
    },
    drain: () => {
      lifecycle.leaving = true;
      drained ??= (async () => {
        const { noticeMs, timeoutMs } = config.drain;
        // A proxy that never saw 200 has sent nothing that could be refused.
        if (noticeMs > 0 && readiness.reached) {
          log.info('leaving', { count: inFlight.count });
          await new Promise<void>((done) => systemClock.after(noticeMs, done));
        }
        lifecycle.draining = true;
        publicListener.endConnections();
        log.info('draining', { count: inFlight.count });
        for (const { queue } of models.values()) queue.drain();
        const until = systemClock.now() + timeoutMs;
        const begun = { at: systemClock.now(), count: inFlight.count };
        const finished = await inFlight.idle(systemClock, timeoutMs);
        const left = inFlight.count;
        if (!finished) log.warn('drain timed out', { count: inFlight.count });
        // Engines first, so that running requests end with their error while their connections are open.
        await Promise.allSettled([parts.closeAll('engines')]);
        await inFlight.idle(systemClock, FLUSH_MS);
        await taken(publicListener, systemClock, until);
        await new Promise<void>((done) => systemClock.after(FLUSH_MS, done));
        await parts.close();
        log.info('drained', {
          count: begun.count - left,
          aborted: left,
          durationMs: Math.round(systemClock.now() - begun.at),
        });
      })();
      return drained;
    },
  };
}
