/**
 * The composition root: opens all parts and connects them. Engines and prompt hosts are forked first, since they take longest to
 * start. Each part adds what closes it to a stack (closers.ts) in the order in which they open, the children as if after the listeners,
 * so that a failed start and a drain close them in reverse:
 *
 *     admission, engines, vision, prompt hosts: running requests end with their error
 *     replies: their last bytes are read; then the public listener
 *     balances, then the delivery of usage and the spool: while this process has the spool's lock
 *     the store of a fleet, the export of metrics, the operators' listener, followed files
 */
import { join } from 'node:path';
import { collectForRequests, keepHeapSmall, leaveMemoryOutOfDumps } from '../../engine/protocol/process-settings.js';
import { FailedKeyLimit } from '../access/failed-keys.js';
import { IdempotencyKeys } from '../access/idempotency.js';
import type { Identity } from '../access/identity.js';
import type { WatchedKeys } from '../access/key-identity.js';
import { RequestLimits } from '../access/limits.js';
import { QuotaLedger } from '../access/quotas.js';
import type { Scrapers } from '../api/operators.js';
import { SeatBoard, type BatchServices, type Services } from '../api/services.js';
import type { Config } from '../config/config.js';
import { WeightFiles } from '../engine-client/weight-files.js';
import { systemClock } from '../lib/clock.js';
import { PromptLanes, type Prompts, type PromptLanesOptions } from '../prompts/lanes.js';
import type { PromptModel } from '../prompts/messages.js';
import { warmUp } from '../prompts/warm-up.js';
import type { Log } from '../telemetry/logger.js';
import { Metrics } from '../telemetry/metrics.js';
import { START, type Position } from '../usage/spool-format.js';
import { Spool, type UsageRecorder } from '../usage/spool.js';
import { NO_USAGE, openBatches } from './batch.js';
import type { Store } from '../store/open.js';
import { openBilling } from './billing.js';
import { Closers, PART_MS, type Closer } from './closers.js';
import { connectionBounds, descriptorLimit, keepDescriptors } from './descriptors.js';
import type { Opening } from './identities.js';
import { hostModels, planModels, promptModelOf, reportPrompts, type Hosted } from './hosted-models.js';
import { ENGINE, templateOf } from './model-processes.js';
import { openOtlpExport } from './otlp-export.js';
import { Readiness } from './readiness.js';
import {
  FLUSH_MS,
  InFlight,
  listen,
  openOperators,
  openPublic,
  openTls,
  taken,
  withSettings,
  type OperatorsView,
} from './servers.js';
import { earliest, openUsage } from './usage.js';
import { reloader } from './weight-reload.js';

/**
 * A file of weights of which not a byte could be read for this long, as on a network share that does not answer, is not hashed, ms: a
 * reload fails, and a start is left to `engine.startTimeoutMs`. Several times what lies between two reports of the thread that reads it.
 */
const FILE_SILENCE_MS = 120_000;

/** Names of the prompt host and of credit in the readiness; a model's id cannot contain a space. */
const PROMPTS = 'prompt host';
const CREDIT = 'prepaid credit';

export type App = Readonly<Awaited<ReturnType<typeof openApp>>>;

/** Parts that a caller replaces. */
export interface Overrides {
  /** Where the parts are added that are open. Absent: a stack of its own. */
  readonly closers?: Closers;
  /** Metrics that parts created earlier use too. Absent: new ones. */
  readonly metrics?: Metrics;
  /** A test's spool in place of the real one. */
  readonly spool?: UsageRecorder;
  /** What {@link forkChildren} returned. Absent: it is called. */
  readonly children?: Children;
  /** Who may read all metrics on the public listener. Absent: no caller. */
  readonly scrapers?: Scrapers | undefined;
  /** Absent: no keys file is used. */
  readonly keysFile?: WatchedKeys | undefined;
  /** Path of the module that engines are forked from. */
  readonly engineEntry?: string;
  /** Path of the module that vision processes are forked from. */
  readonly visionEntry?: string;
  /** Starts the prompt hosts; tests pass one that shares hosts among sidecars. */
  readonly makePrompts?: (options: PromptLanesOptions) => Prompts;
}

export function metricsOf({ models }: Pick<Config, 'models'>): Metrics {
  return new Metrics(models.map(({ id }) => id));
}

/** The child processes, and what is known of their starts. */
export interface Children {
  readonly models: ReadonlyMap<string, Hosted>;
  readonly prompts: Prompts;
  readonly promptModels: readonly PromptModel[];
  readonly weights: WeightFiles;
  readonly readiness: Readiness;
  /** Of the children, those that end first last. */
  readonly closing: readonly Closer[];
}

/**
 * Forks the prompt host and the engines, for which a start waits longest. Rejects with one line if a model's template cannot be read or its
 * device is missing. Adds what closes them to `closers`.
 */
export async function forkChildren(
  config: Config,
  log: Log,
  closers: Closers,
  {
    metrics,
    engineEntry = ENGINE,
    visionEntry,
    makePrompts = (options) => new PromptLanes(options),
  }: Pick<Overrides, 'engineEntry' | 'visionEntry' | 'makePrompts'> & { readonly metrics: Metrics },
): Promise<Children> {
  const clock = systemClock;
  // Before processes are started, which inherit it.
  leaveMemoryOutOfDumps();
  collectForRequests();
  if (config.batch.store !== 'off') keepHeapSmall();
  const planned = await planModels(config, config.models.map(templateOf));
  const readiness = new Readiness([
    PROMPTS,
    CREDIT,
    ...config.models.filter(({ load }) => load === 'eager').map(({ id }) => id),
  ]);
  const promptModels = planned.map(promptModelOf);
  const prompts = makePrompts({
    ...config.prompts,
    inlineBytes: config.bodies.inlineBytes,
    models: promptModels,
    clock,
    hooks: {
      restart: (why, delayMs, lane) => {
        metrics.processes.promptHostRestarted();
        log.warn('prompt host restarts', { lane, reason: why, retryAfterMs: delayMs });
      },
    },
  });
  const closing: Closer[] = [];
  const add = (closer: Closer): void => {
    closing.push(closer);
    closers.add(closer);
  };
  add({ name: 'prompt hosts', close: () => prompts.close() });
  const weights = new WeightFiles(FILE_SILENCE_MS, clock, undefined, join(config.dataDir, 'weights.json'));
  const models = hostModels(planned, { config, weights, engineEntry, visionEntry, metrics, readiness, log });
  const hosted = [...models.values()];
  add({ name: 'vision processes', close: () => hosted.forEach(({ vision }) => vision?.close()) });
  add({ name: 'engines', close: () => Promise.all(hosted.map(({ engine }) => engine.close())) });
  for (const { engine, vision } of hosted) {
    engine.start();
    // Of a lazy model with the first image.
    if (!engine.onDemand) vision?.start();
  }
  return { models, prompts, promptModels, weights, readiness, closing };
}

/**
 * Starts everything. Rejects if an address or a file cannot be used, or with StartEnded if the parts were closed meanwhile; then all that
 * was open is closed.
 */
export async function startApp(config: Config, identity: Identity, log: Log, overrides: Overrides = {}): Promise<App> {
  const { closers = new Closers(systemClock, log) } = overrides;
  try {
    return await openApp(config, identity, log, overrides, closers);
  } catch (error) {
    await closers.close();
    throw error;
  }
}

/** Loaded here, since few sidecars share a store. */
async function openStoreOf(
  config: Config,
  metrics: Metrics,
  { clock, log, closers }: Opening,
  ready: Readiness,
  keys: WatchedKeys | undefined,
): Promise<Store> {
  const { openStore } = await import('../store/open.js');
  const store = await openStore(config, clock, log, metrics, keys, (line) => ready.never(line));
  closers.add({ name: 'store', close: () => store.close() });
  return store;
}

async function openApp(config: Config, identity: Identity, log: Log, overrides: Overrides, closers: Closers) {
  const clock = systemClock;
  const { metrics = metricsOf(config), spool: spoolStandIn, scrapers } = overrides;
  /** Each is set once and never reset. */
  const lifecycle = { leaving: false, draining: false, promptsReady: false };
  const board = new SeatBoard();
  const shared = connectionBounds(config, descriptorLimit());
  if (shared.kind === 'short') throw new Error(shared.line);
  const opening = { clock, log, closers };
  const children = overrides.children ?? (await forkChildren(config, log, closers, { ...overrides, metrics }));
  const { models, prompts, promptModels, weights, readiness } = children;
  const deps = { ...opening, config, metrics, connections: shared.bounds, reserve: keepDescriptors(log, closers) };
  const tls = await openTls(config, opening);
  // The operators' listener opens before the rest: reading a long spool takes time, and liveness probes must succeed meanwhile.
  let view: OperatorsView = {
    leaving: () => lifecycle.leaving,
    spool: { health: { ok: true }, append: () => undefined, sync: () => Promise.resolve(true), revise: () => false },
    credit: undefined,
    models: new Map(),
    board,
    promptHosts: () => [],
    // Those of a store can be changed once it is open.
    ...(overrides.keysFile && config.keys.source === 'file' && { keysFile: overrides.keysFile }),
  };
  const operatorsListener = await openOperators(deps, () => view);
  const operatorsAt = await withSettings(
    'operators.host and operators.port',
    operatorsListener.listen(config.operators.host, config.operators.port),
  );
  log.info('operators listening', { host: config.operators.host, port: operatorsAt.port });
  // Closed after all parts that count metrics, but for the operators' listener.
  const tracing = await openOtlpExport(config, metrics, log, closers);
  const store =
    config.store.url === undefined
      ? undefined
      : await openStoreOf(config, metrics, opening, readiness, overrides.keysFile);
  const { credit: fleet, prices, keys: keysFile } = store ?? {};
  const billing = await openBilling({ config, metrics: metrics.credit, fleet, prices: prices?.list, ...opening });
  const opened: { batch?: BatchServices } = {};
  // Until they are read, batches may need all of it.
  const batchesFrom = (): Position | undefined =>
    config.batch.store === 'off' ? undefined : opened.batch ? opened.batch.batches.keepFrom : START;
  const { spool, prune, totals } = spoolStandIn
    ? { spool: spoolStandIn, prune: () => Promise.resolve(), totals: undefined }
    : await openUsage(config, metrics, log, closers, () =>
        earliest(store?.claims.ends.keepFrom, store?.quotas.ends.keepFrom, billing.keepFrom(), batchesFrom()),
      );
  if (spool instanceof Spool) {
    store?.claims.ends.recovered(spool);
    store?.quotas.ends.recovered(spool);
  }
  const ownQuotas = new QuotaLedger(clock, () => new Date(), totals && (() => totals()?.billedTokens));
  store?.quotas.begin(ownQuotas);
  if (totals) store?.usage.begin(totals);
  closers.add(billing.closer);
  const inFlight = new InFlight();
  const batch = await openBatches(config, opening, {
    spool: spool instanceof Spool ? spool : NO_USAGE,
    services: () => ofBatches,
    forget: () => {
      const isForgotten = prompts.forgetBatches();
      if (isForgotten) for (const { engine } of models.values()) engine.forget();
      return isForgotten;
    },
    counted: (work) => inFlight.run(work),
  });
  if (batch) opened.batch = batch;
  const publicListener = openPublic(deps, () => services, inFlight, { scrapers, tls: tls?.files });
  tls?.follow(publicListener);
  /** Clock reading until which a drain waits for readers of whole answers. */
  let readersUntil = -Infinity;
  closers.add({
    name: 'replies',
    withinMs: config.drain.timeoutMs + PART_MS,
    close: async () => {
      await inFlight.idle(clock, FLUSH_MS);
      await taken(publicListener, clock, readersUntil);
      await new Promise<void>((done) => clock.after(FLUSH_MS, done));
    },
  });
  const hosted = [...models.values()];
  for (const closer of children.closing) closers.raise(closer);
  const services: Services = {
    clock,
    date: () => new Date(),
    random: Math.random,
    identity: new FailedKeyLimit(clock, identity, config.keys.failuresPerMinute),
    prompts,
    models,
    spool,
    pricing: billing.pricing,
    credit: billing.credit,
    ...(config.credit.reserve === 'parts' && { creditInParts: true as const }),
    metrics,
    board,
    log,
    ...(tracing && { tracing }),
    ...(totals && { totals }),
    ...(store && { fleetUsage: store.usage }),
    ...(batch && { batch }),
    idempotency: store?.claims ?? new IdempotencyKeys(clock, config.idempotency),
    ...(store && { fenced: () => store.replica.fenced }),
    ...(keysFile && { staleKeys: () => overrides.keysFile?.isCurrent() === false }),
    keyLimits: store?.keyLimits ?? new RequestLimits(clock, config.limits),
    quotas: store?.quotas ?? ownQuotas,
    limits: {
      chatBytes: config.bodies.chatBytes,
      inlineBytes: config.bodies.inlineBytes,
      keepAliveMs: config.stream.keepAliveMs,
      timeoutMs: config.request.timeoutMs,
    },
    contract: config.contract,
    billingLine: config.messages.billingLine,
    isolateDecisions: config.decisions.isolate,
    promptHosts: () => prompts.states,
    promptsReady: () => lifecycle.promptsReady,
    templates: () => prompts.models,
    leaving: () => lifecycle.leaving,
    draining: () => lifecycle.draining,
  };
  const ofBatches = { ...services, prompts: prompts.ofBatches };
  const reload = reloader({ models, files: weights, prompts, promptModels, log });
  view = {
    ...view,
    ...services,
    ...(billing.grants && { grants: billing.grants }),
    ...(store?.grants && { grants: store.grants }),
    ...(store && { fleet: store.fleet }),
    ...(keysFile && { keysFile }),
    ...(prices && { prices }),
    reload,
    promptHosts: () => prompts.states,
  };
  const publicPort = await listen(publicListener, config.listen, log);
  await store?.begin();
  const refuseWork = (): void => {
    lifecycle.leaving = lifecycle.draining = true;
    publicListener.endConnections();
    void batch?.runner.close();
    for (const { queue } of hosted) queue.drain();
  };
  closers.add({ name: 'admission', close: refuseWork });
  batch?.runner.runAll();
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
    await warmUp(prompts, found.kind === 'ready' ? found.models : [], form);
    if (services.leaving()) return;
    lifecycle.promptsReady = true;
    readiness.up(PROMPTS);
  });

  const drain = async (): Promise<void> => {
    const { noticeMs, timeoutMs } = config.drain;
    lifecycle.leaving = true;
    // A proxy that never saw 200 has sent nothing that could be refused.
    if (noticeMs > 0 && readiness.reached) {
      log.info('leaving', { count: inFlight.count });
      await new Promise<void>((done) => clock.after(noticeMs, done));
    }
    const begun = { at: clock.now(), count: inFlight.count };
    readersUntil = begun.at + timeoutMs;
    refuseWork();
    log.info('draining', { count: begun.count });
    const finished = await inFlight.idle(clock, timeoutMs);
    const aborted = inFlight.count;
    if (!finished) log.warn('drain timed out', { count: aborted });
    await closers.close();
    log.info('drained', { count: begun.count - aborted, aborted, durationMs: Math.round(clock.now() - begun.at) });
  };
  let drained: Promise<void> | undefined;
  return {
    /** Ports in use; 0: the public listener is only a Unix socket. */
    publicPort,
    operatorsPort: operatorsAt.port,
    /** Resolves once every model is ready; rejects with one line if a model can never be. The caller then closes the parts. */
    ready: () => readiness.all(),
    /** Reads the certificate's files now, if there are some. Problems are logged. */
    reload: async () => await tls?.reload(),
    /** Nothing is kept in engines and vision processes that requests of this account left; where accounts share prefixes, nothing of any. */
    forget: (account: string) => {
      for (const { engine, vision, closeScope } of hosted) {
        const scope = closeScope(account);
        engine.forget(scope);
        vision?.forget(scope);
      }
    },
    /**
     * /readyz answers 503; after a notice new work is refused, and each answer to callers ends its connection; running requests may finish
     * within the configured time, and are then ended with an error. Resolves when all parts are closed. Idempotent.
     */
    drain: () => (drained ??= drain()),
  };
}
