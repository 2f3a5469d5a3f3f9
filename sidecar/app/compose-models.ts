/** Composes the models: each with an engine and a queue for its seats, and the error line if one cannot be served. */
import { resolve } from 'node:path';
import { createFairQueue } from '../admission/fair-queue.js';
import type { SeatQueue } from '../admission/seat-queue.js';
import { systemClock } from '../lib/clock.js';
import type { Config, ModelConfig } from '../config/config.js';
import { EMBEDDED_MODEL } from '../engine-client/weight-files.js';
import type { CacheScope, EngineEvents } from '../engine-client/engine.js';
import { CacheScopes, REUSED_TOKENS } from '../engine-client/prefixes.js';
import type { ReplicatedEngine } from '../engine-client/replicated-engine.js';
import { StartGate } from '../engine-client/start-gate.js';
import type { HostedModel } from '../api/services.js';
import type { TemplateSettings } from '../../engine/protocol/template-settings.js';
import type { FirstStart } from '../prompts/client.js';
import { composeEngine, sharesCacheRoom, type EngineParts } from './compose-engine.js';
import { composeVision } from './compose-vision.js';
import { FirstStarts } from './first-starts.js';
import { mappedBeside } from './mapped-beside.js';
import type { Readiness } from './readiness.js';
import { nameOf, type ReplicaPlan } from './replica-plans.js';
import { warnOfToolFormats } from './tool-format-warnings.js';
import type { ModelLoad } from '../telemetry/endpoint-metrics.js';
import type { Log } from '../telemetry/logger.js';
import type { VisionClient } from '../vision/client.js';
import type { Metrics } from '../telemetry/metrics.js';

/**
 * How long to wait for an engine's error about its model before the prompt host’s error is used, ms: three loads of a
 * file that crashes llama.cpp take half a minute on a busy machine.
 */
const VERDICT_MS = 60_000;

export interface Hosted extends HostedModel {
  readonly engine: ReplicatedEngine;
  readonly vision?: VisionClient;
  /** Path of its weights, as configured. */
  readonly file: string;
  /** Returns the scope of an account's requests so far; its later ones get another. */
  readonly closeScope: (account: string) => CacheScope;
  /** Settles once its engine was ready or has finally failed; at once for a lazy model. */
  readonly settled: Promise<void>;
}

export interface Observers {
  readonly metrics: Metrics;
  readonly readiness: Readiness;
  readonly log: Log;
}

/** The folder for models that the sidecar downloads. */
export function modelsDir(dataDir: string): string {
  return resolve(dataDir, 'models');
}

/** The path of each configured file; `embedded` is the bundled model. */
export function modelFiles({ models }: Config): Map<string, string> {
  return new Map(models.map(({ file }) => [file, file === 'embedded' ? EMBEDDED_MODEL : resolve(file)]));
}

/** The modules and files that child processes are started with. `visionEntry`: path of their module, absent: our own. */
type Entries = Pick<EngineParts, 'entry' | 'weights'> & { readonly visionEntry: string | undefined };

/**
 * All models by id, none started yet. `files`: as {@link modelFiles} gave them; `plans`: the replicas of each, by id;
 * `templates`: how each is prompted, by id.
 */
export function hostModels(
  config: Config,
  files: ReadonlyMap<string, string>,
  plans: ReadonlyMap<string, readonly ReplicaPlan[]>,
  templates: ReadonlyMap<string, TemplateSettings>,
  { entry, weights, visionEntry }: Entries,
  observers: Observers,
): ReadonlyMap<string, Hosted> {
  const models = new Map<string, Hosted>();
  const gate = config.engine.checkMemory ? new StartGate() : undefined;
  const sharing = config.models.filter(sharesCacheRoom);
  const engines = sharing.reduce((sum, { id }) => sum + (plans.get(id)?.length ?? 0), 0);
  for (const model of config.models) {
    const file = files.get(model.file) ?? model.file;
    const memory = gate && { gate, mappedElsewhere: (loads: string) => mappedBeside(loads, models.values()) };
    const template = templates.get(model.id) ?? {};
    const parts = { entry, weights, engines, memory, template, visionEntry };
    const hosted = hostModel(config, { ...model, file }, plans.get(model.id) ?? [], parts, observers);
    const { scope } = model.prefixCache;
    const scopes = new CacheScopes(scope);
    const scopeOf = (account: string): CacheScope => scopes.of(account);
    models.set(model.id, { ...hosted, scopeOf, closeScope: (account) => scopes.close(account) });
  }
  return models;
}

/**
 * The error line if prompts cannot be made for a model, or undefined. If the engine reports an error about the same
 * model, that is preferred, since it knows more about the file.
 */
export async function reportPrompts(
  found: FirstStart,
  models: ReadonlyMap<string, Hosted>,
  log: Log,
): Promise<string | undefined> {
  if (found.kind === 'unable') {
    await settledInTime([...models.values()].map(({ settled }) => settled));
    return 'the prompt host could not be started';
  }
  warnOfToolFormats(found.models, log);
  const bad = found.models.find(({ problem }) => problem !== undefined);
  if (!bad) return undefined;
  const problem = bad.problem ?? '';
  log.error('prompt host cannot serve a model', { model: bad.id, reason: problem });
  const model = models.get(bad.id);
  if (model) await settledInTime([model.settled]);
  return unservable(bad.id, model?.file ?? '', problem);
}

async function settledInTime(all: readonly Promise<void>[]): Promise<void> {
  let cancel = (): void => undefined;
  const late = new Promise<void>((settle) => (cancel = systemClock.after(VERDICT_MS, settle)));
  await Promise.race([Promise.all(all), late]);
  cancel();
}

/** The error line of a failed start; llama.cpp's message does not name the file. */
function unservable(id: string, file: string, why: string): string {
  return `model ${id} cannot be served from ${file}: ${why}`;
}

/** Read at each scrape and for each load report, so it allocates nothing. */
function loadOf({ load }: SeatQueue, engine: ReplicatedEngine): ModelLoad {
  return {
    get seats() {
      return load.seats;
    },
    get busy() {
      return load.busy;
    },
    get waiting() {
      return load.waiting;
    },
    get heldTokens() {
      return engine.heldTokens.running;
    },
    get capacityTokens() {
      return engine.capacityTokens;
    },
    blockTokens: REUSED_TOKENS,
  };
}

/** One model: its engine and its queue, in which each replica is paused while it has no seat. */
function hostModel(
  config: Config,
  model: ModelConfig,
  plans: readonly ReplicaPlan[],
  parts: Entries & Pick<EngineParts, 'engines' | 'memory' | 'template'>,
  { metrics, readiness, log }: Observers,
): Omit<Hosted, 'scopeOf' | 'closeScope'> {
  const { id, kind, file, ownedBy, cohort, load } = model;
  const lazy = load === 'lazy';
  const comes = (): boolean => ['ready', 'cold'].includes(engine.state);
  const queue = createFairQueue({
    clock: systemClock,
    random: Math.random,
    config: config.queue,
    seats: plans,
    reusableTokens: (prefix, replica) => engine.heldPrefixes(replica).longestOf(prefix),
    comes,
    learns: config.development.learnedQueue,
  });
  plans.forEach((_, replica) => queue.pause(replica));
  let settle = (): void => undefined;
  const settled = lazy ? Promise.resolve() : new Promise<void>((done) => (settle = done));
  const starts = new FirstStarts(plans.length, {
    up: () => {
      readiness.up(id);
      settle();
    },
    never: (why) => {
      // The start does not wait for a lazy model, so it does not fail with it either.
      if (!lazy) readiness.never(unservable(id, file, why));
      settle();
    },
  });
  const events = (replica: number): EngineEvents => ({
    seats: (count) => {
      if (count === 0) {
        queue.pause(replica);
        if (!comes()) queue.refuseUnserved();
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
  const wanted = (): boolean => queue.load.busy + queue.load.waiting > 0;
  const engine: ReplicatedEngine = composeEngine(config, model, plans, { ...parts, log, wanted, events });
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
    load: loadOf(queue, engine),
  });
  const gate = cohort === undefined ? {} : { cohort };
  const vision = composeVision(config, model, log, parts.visionEntry);
  const created = Math.floor(Date.now() / 1000);
  // Of an external server it is not known whether it loads or is gone.
  const waits = config.queue.waitForLoad && model.engine.kind === 'llama.cpp';
  const loading = waits && { loadWaitMs: config.queue.maxWaitMs };
  return { id, kind, ownedBy, ...gate, created, queue, ...loading, engine, ...(vision && { vision }), file, settled };
}
