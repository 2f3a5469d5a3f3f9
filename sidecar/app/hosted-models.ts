/** Hosts the models: each with its processes and a queue for its seats, and the error line if one cannot be served. */
import { resolve } from 'node:path';
import { fileKey, sizeIn } from '../../engine/protocol/file-key.js';
import { isPooling, type TemplateSettings } from '../../engine/protocol/setup.js';
import { SeatQueue } from '../admission/queue.js';
import type { SessionSettings } from '../admission/sessions.js';
import type { HostedModel } from '../api/services.js';
import type { Config, ModelConfig } from '../config/config.js';
import type { CacheScope, EngineEvents, EngineState } from '../engine-client/engine.js';
import { CacheScopes, REUSED_TOKENS } from '../engine-client/prefixes.js';
import type { ReplicatedEngine } from '../engine-client/replicated-engine.js';
import { StartGate } from '../engine-client/start-gate.js';
import { EMBEDDED_MODEL, type WeightFiles } from '../engine-client/weight-files.js';
import { systemClock, withTimeout } from '../lib/clock.js';
import type { FirstStart } from '../prompts/client.js';
import type { ModelReport, PromptModel } from '../prompts/messages.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { VisionClient } from '../vision/client.js';
import { composeEngine, composeVision, constrainsWholeReplies, gpuUsers, sharesCacheRoom } from './model-processes.js';
import { FirstStarts, type Readiness } from './readiness.js';
import { nameOf, planReplicas, type ReplicaPlan } from './replica-plans.js';

/**
 * How long to wait for an engine's error about its model before the prompt host’s error is used, ms: three loads of a file that crashes
 * llama.cpp take half a minute on a busy machine.
 */
const VERDICT_MS = 60_000;

/** A configured model and what the start found out about it. */
export interface PlannedModel {
  /** With the path of its file. */
  readonly model: ModelConfig;
  readonly template: TemplateSettings;
  readonly replicas: readonly ReplicaPlan[];
}

export interface Hosted extends HostedModel {
  readonly engine: ReplicatedEngine;
  readonly vision?: VisionClient;
  /** Path of its weights, as configured. */
  readonly file: string;
  /** Returns the scope of an account's requests so far; its later ones get another. */
  readonly closeScope: (account: string) => CacheScope;
  /** Settles once its engine was ready or has finally failed; at once for a lazy model. */
  readonly settled: Promise<unknown>;
}

/** What the models of one sidecar share. */
export interface Hosting {
  readonly config: Config;
  /** Hashes of files of weights. */
  readonly weights: WeightFiles;
  /** Paths of the modules that engines and vision processes are forked from. */
  readonly engineEntry: string;
  readonly visionEntry: string | undefined;
  readonly metrics: Metrics;
  readonly readiness: Readiness;
  readonly log: Log;
}

/** The folder for models that the sidecar downloads. */
export function modelsDir(dataDir: string): string {
  return resolve(dataDir, 'models');
}

/** Rejects with one line if a device is not there. `templates`: how each model is prompted, in their order. */
export function planModels(
  { models }: Pick<Config, 'models'>,
  templates: readonly TemplateSettings[],
): Promise<readonly PlannedModel[]> {
  return Promise.all(
    models.map(async (configured, i) => {
      const { id, file } = configured;
      const model = { ...configured, file: file === 'embedded' ? EMBEDDED_MODEL : resolve(file) };
      const planned = await planReplicas(model);
      if (planned.kind === 'unfit') throw new Error(`model ${id} cannot be served: ${planned.why}`);
      return { model, template: templates[i] ?? {}, replicas: planned.replicas };
    }),
  );
}

/** What prompt hosts need of a model. */
export function promptModelOf({ model, template, replicas }: PlannedModel): PromptModel {
  const { id, kind, file, vision, engine } = model;
  return {
    id,
    kind,
    ...(vision && { images: { maxImages: vision.maxImages, maxPixels: vision.maxPixels } }),
    ...(constrainsWholeReplies(engine.kind) && { wholeGrammars: true as const }),
    ...(kind === 'rerank' && engine.kind !== 'llama.cpp' && { pairTexts: true as const }),
    template,
    contextPerSeat: Math.max(...replicas.map(({ contextPerSeat }) => contextPerSeat)),
    file,
  };
}

/** All models by id, none started yet. */
export function hostModels(planned: readonly PlannedModel[], hosting: Hosting): ReadonlyMap<string, Hosted> {
  const models = new Map<string, Hosted>();
  const gate = hosting.config.engine.checkMemory ? new StartGate() : undefined;
  const memory = gate && { gate, mappedElsewhere: (file: string) => mappedBeside(file, models.values()) };
  const engines = planned
    .filter(({ model }) => sharesCacheRoom(model))
    .reduce((sum, { replicas }) => sum + replicas.length, 0);
  const onGpus = planned.reduce((sum, { model, replicas }) => sum + gpuUsers(model, replicas.length), 0);
  const beside = Math.max(0, onGpus - 1);
  for (const one of planned) models.set(one.model.id, hostModel(one, hosting, { engines, beside, memory }));
  return models;
}

/**
 * The error line if prompts cannot be made for a model, or undefined. If the engine reports an error about the same model, that is
 * preferred, since it knows more about the file.
 */
export async function reportPrompts(
  found: FirstStart,
  models: ReadonlyMap<string, Hosted>,
  log: Log,
): Promise<string | undefined> {
  if (found.kind === 'unable') {
    await withTimeout(systemClock, VERDICT_MS, Promise.all([...models.values()].map(({ settled }) => settled)));
    return 'the prompt host could not be started';
  }
  warnOfToolFormats(found.models, log);
  const bad = found.models.find(({ problem }) => problem !== undefined);
  if (!bad) return undefined;
  const problem = bad.problem ?? '';
  log.error('prompt host cannot serve a model', { model: bad.id, reason: problem });
  const model = models.get(bad.id);
  if (model) await withTimeout(systemClock, VERDICT_MS, model.settled);
  return unservable(bad.id, model?.file ?? '', problem);
}

/** Logs each model of these whose own format of calls is not known, unless its `toolFormat` chose another. */
export function warnOfToolFormats(models: readonly Pick<ModelReport, 'id' | 'calls'>[], log: Pick<Log, 'warn'>): void {
  for (const { id, calls } of models) {
    if (calls && !calls.native && !calls.chosen)
      log.warn('tools without a native format', { model: id, reason: calls.says });
  }
}

/** The error line of a failed start; llama.cpp's message does not name the file. */
function unservable(id: string, file: string, why: string): string {
  return `model ${id} cannot be served from ${file}: ${why}`;
}

/** An external server keeps the state of what it likes: there sessions are recognised, and their seats are not kept. */
function sessionsOf({ engine, prefixReuse, prefixCache }: PlannedModel['model'], keepMaxMs: number): SessionSettings {
  const keeps = engine.kind === 'llama.cpp' && prefixReuse !== 'off';
  return { keepMaxMs: keeps ? keepMaxMs : 0, hasCache: prefixCache.bytes !== 0 };
}

/** One model: its engine and its queue, in which each replica is paused while it has no seat. */
function hostModel(
  { model, template, replicas: plans }: PlannedModel,
  { config, weights, engineEntry, visionEntry, metrics, readiness, log }: Hosting,
  shared: Pick<Parameters<typeof composeEngine>[3], 'engines' | 'beside' | 'memory'>,
): Hosted {
  const { id, kind, file, ownedBy, cohort, load, minDimensions } = model;
  const lazy = load === 'lazy';
  const isServed = (): boolean => ['ready', 'cold'].includes(engine.state);
  const queue = new SeatQueue({
    clock: systemClock,
    random: Math.random,
    config: config.queue,
    seats: plans,
    reusableTokens: (prefix, replica) => engine.heldPrefixes(replica).longestOf(prefix),
    isServed,
    ...(config.sessions.keepMaxMs > 0 && { sessions: sessionsOf(model, config.sessions.keepMaxMs) }),
    headroom: config.batch.headroomPercent / 100,
    learns: config.development.learnedQueue,
  });
  plans.forEach((_, replica) => queue.pause(replica));
  const starts = new FirstStarts(plans.length);
  void starts.ended.then((why) => {
    if (why === undefined) readiness.up(id);
    // The start does not wait for a lazy model, so it does not fail with it either.
    else if (!lazy) readiness.never(unservable(id, file, why));
  });
  const events = (replica: number): EngineEvents => ({
    seats: (count) => {
      if (count === 0) {
        queue.pause(replica);
        if (!isServed()) queue.refuseUnserved();
        return;
      }
      queue.resume(count, replica);
      starts.ready(replica);
    },
    unservable: (why, unfit) => {
      const name = plans.length > 1 ? `${nameOf(replica, plans[replica]?.devices ?? [])}: ` : '';
      starts.lost(replica, `${name}${why}`, unfit);
    },
    restarting: () => metrics.processes.engineRestarted(id, replica),
    unconfirmed: (count) => metrics.processes.unconfirmedCancels(id, count),
  });
  const wanted = (): boolean => queue.requests > 0;
  const engine: ReplicatedEngine = composeEngine(config, model, plans, {
    ...shared,
    entry: engineEntry,
    weights,
    template,
    log,
    wanted,
    events,
  });
  metrics.sources.set(id, {
    queue: (named) => queue.report(named),
    engine: () => ({ state: engine.state, ...engine.heldTokens, capacity: engine.capacityTokens }),
    replicas: () => {
      const { all } = queue.load.replicas;
      return engine.replicas.map(({ state }, at) => {
        const { seats = 0, busy = 0, up = false, tokenTimeRatio } = all[at] ?? {};
        return { state, seats: up ? seats : 0, busy, tokenTimeRatio };
      });
    },
    caches: () => engine.caches,
    load: () => {
      const { seats, busy, waiting } = queue.load;
      const { heldTokens, capacityTokens } = engine;
      return { seats, busy, waiting, heldTokens: heldTokens.running, capacityTokens, blockTokens: REUSED_TOKENS };
    },
  });
  const vision = composeVision(config, model, log, visionEntry);
  // Of inputs no state is kept: a scope is then what shares the engine's time.
  const scopes = new CacheScopes(isPooling(kind) ? 'account' : model.prefixCache.scope);
  // Of an external server it is not known whether it loads or is gone.
  const waits = config.queue.waitForLoad && model.engine.kind === 'llama.cpp';
  return {
    id,
    kind,
    ownedBy,
    ...(cohort !== undefined && { cohort }),
    created: Math.floor(Date.now() / 1000),
    queue,
    ...(waits && { loadWaitMs: config.queue.maxWaitMs }),
    engine,
    ...(vision && { vision }),
    ...(minDimensions !== undefined && { leastDimensions: minDimensions }),
    file,
    scopeOf: (account) => scopes.of(account),
    closeScope: (account) => scopes.close(account),
    settled: lazy ? Promise.resolve() : starts.ended,
  };
}

/**
 * Bytes of weights of files other than `file` that engines have memory-mapped on a CPU. The kernel counts them as available,
 * although each step needs them. Weights of the same file exist once. Weights that an engine has repacked are not
 * mapped any more, and the kernel counts them as used. Called only while no other engine loads.
 */
export function mappedBeside(file: string, models: Iterable<WithMappings>): number {
  const others = new Map<string, number>();
  for (const { engine } of models) {
    for (const [at, { state, facts }] of engine.replicas.entries()) {
      // Replicas have different files while weights are replaced.
      const other = engine.setups[at]?.file ?? file;
      if (other === file || state !== 'ready' || facts?.gpu !== false) continue;
      // Of all parts; 0 of one that cannot be read: an unavailable network share must not end the process.
      const bytes = sizeIn(fileKey(other) ?? '');
      others.set(other, Math.max(0, bytes - (facts.repackedBytes ?? 0)));
    }
  }
  return [...others.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** The properties of a hosted model that tell what its engine has mapped. */
interface WithMappings {
  readonly engine: {
    readonly setups: readonly { readonly file: string }[];
    readonly replicas: readonly {
      readonly state: EngineState;
      readonly facts: { readonly gpu: string | false; readonly repackedBytes?: number } | undefined;
    }[];
  };
}
