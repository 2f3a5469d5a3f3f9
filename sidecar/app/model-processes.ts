/**
 * The processes of one model, none started yet: an engine for each replica, one that reads images, and what each is started with. The one
 * place that chooses an engine's kind.
 */
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isPooling, type RemoteSetup, type TemplateSettings } from '../../engine/protocol/setup.js';
import type { Config, ModelConfig } from '../config/config.js';
import { childEnvironment } from '../lib/child-process.js';
import type { EngineEvents } from '../engine-client/engine.js';
import { ReplicatedEngine } from '../engine-client/replicated-engine.js';
import type { StartGate } from '../engine-client/start-gate.js';
import { EngineReplica } from '../engine-client/replica.js';
import { sameWeights, type WeightFiles } from '../engine-client/weight-files.js';
import { Backoff, systemClock } from '../lib/clock.js';
import { VisionClient } from '../vision/client.js';
import type { Log } from '../telemetry/logger.js';
import { gpuUuids, setupOf, uniformNames, type ReplicaPlan } from './replica-plans.js';
import type { VisionSetup } from '../../engine/protocol/vision-messages.js';
import { VisionProcess } from '../vision/process.js';
import { NotRegularFile, readRegularSync } from '../lib/checked-file.js';

/** The module that our own engine's processes are forked from. */
export const ENGINE = fileURLToPath(new URL('../../engine/main.js', import.meta.url));

/** How often an engine and a vision process send a sign of life, ms. */
export const HEARTBEAT_MS = 500;

const REMOTE_ENGINE = fileURLToPath(new URL('../../engine/remote/main.js', import.meta.url));

/** Answers the engines' questions about memory before they load; absent: they do not ask. */
export interface MemoryCheck {
  readonly gate: StartGate;
  /** Bytes that other engines have mapped of files other than this one. */
  readonly mappedElsewhere: (file: string) => number;
}

export interface EngineParts {
  /** Path of the module that our own engine's processes are forked from. */
  readonly entry: string;
  /** Hashes of files of weights. */
  readonly weights: WeightFiles;
  /** Engine processes of all models that share the free memory for prefix caches ({@link sharesCacheRoom}). */
  readonly engines: number;
  /** Processes of all models that may use a GPU ({@link gpuUsers}), but for one. */
  readonly beside: number;
  readonly memory: MemoryCheck | undefined;
  readonly template: TemplateSettings;
  readonly log: Log;
  /** Whether a request has or waits for a seat of the model. */
  readonly wanted: () => boolean;
  /** Where each replica reports to, by its index. */
  readonly events: (replica: number) => EngineEvents;
}

/** `model`: with the path of its file. */
export function composeEngine(
  config: Pick<Config, 'engine'>,
  model: ModelConfig,
  plans: readonly ReplicaPlan[],
  { entry, engines, beside, weights, memory, template, log, wanted, events }: EngineParts,
): ReplicatedEngine {
  const { id, load, idleUnloadMs, gpu, stepMs, prefillShare, prefillAhead } = model;
  const { bytes, maxAgeMs } = model.prefixCache;
  const known = sameWeights(weights, (reason) => log.warn('weights not hashed', { model: id, reason }));
  // CUDA's order of the devices, which is not Vulkan's.
  const uuids = gpu === 'vulkan' ? undefined : gpuUuids(childEnvironment()['CUDA_DEVICE_ORDER']);
  const replicas = plans.map(({ devices, environment, server, ...sizes }, replica) => {
    const remote = server && remoteSetup(model, server);
    return new EngineReplica({
      entry: remote ? REMOTE_ENGINE : entry,
      setup: {
        ...setupOf(model),
        ...sizes,
        template,
        stepMs,
        prefillShare,
        prefillAhead,
        prefixCache: { ...(bytes !== undefined && { bytes }), maxAgeMs, engines, beside, shared: plans.length > 1 },
        heartbeatMs: HEARTBEAT_MS,
        ...(remote && { remote }),
      },
      timing: config.engine,
      clock: systemClock,
      random: Math.random,
      log,
      names: { model: id, ...(plans.length > 1 && { replica }) },
      ...(devices.length > 0 && { environment }),
      onDemand: { lazy: load === 'lazy', idleUnloadMs, wanted },
      devices: uniformNames({ devices, environment }, uuids),
      ...(remote === undefined && { ...memory, weights: known, hashMsLeft: (path) => weights.msLeft(path) }),
      events: events(replica),
    });
  });
  return new ReplicatedEngine(
    replicas,
    plans.map(({ contextPerSeat }) => contextPerSeat),
  );
}

/** How a model's engine process reaches one of its servers; undefined if our own engine computes. */
export function remoteSetup(
  { engine }: Pick<ModelConfig, 'engine'>,
  server: NonNullable<ReplicaPlan['server']>,
): RemoteSetup | undefined {
  const { kind, model: name, secretFile, tokens, cancelWaitMs, silentMs, tokenMs } = engine;
  if (kind === 'llama.cpp') return undefined;
  const more = {
    ...(name !== undefined && { model: name }),
    ...(secretFile !== undefined && { secretFile }),
    ...(tokens !== undefined && { tokens }),
  };
  return { kind, ...server, ...more, cancelWaitMs, silentMs, tokenMs };
}

/** Whether a model's engine processes have prefix caches that are sized by what is free. */
export function sharesCacheRoom({ kind, engine, prefixReuse, prefixCache }: CacheSettings): boolean {
  return !isPooling(kind) && engine.kind === 'llama.cpp' && prefixReuse !== 'off' && prefixCache.bytes === undefined;
}

/** Processes of a model, of so many replicas, that may use a GPU of this machine: on which one is not known before they load. */
export function gpuUsers({ gpu, engine, vision }: ModelConfig, replicas: number): number {
  if (gpu === false) return 0;
  return (engine.kind === 'llama.cpp' ? replicas : 0) + (vision?.devices === undefined ? 0 : 1);
}

/** The settings that decide whether a model has a prefix cache. */
export type CacheSettings = Pick<ModelConfig, 'kind' | 'engine' | 'prefixReuse' | 'prefixCache'>;

/** Whether a kind of engine can enforce a grammar only from a reply's beginning. */
export function constrainsWholeReplies(kind: ModelConfig['engine']['kind']): boolean {
  return kind === 'vllm' || kind === 'sglang';
}

/**
 * What reads a model's images: a supervised process, not started yet. `model`: with the path of its file. `entry`: of its process' module,
 * absent: our own. Undefined if it takes no images.
 */
export function composeVision(
  { engine }: Pick<Config, 'engine'>,
  model: ModelConfig,
  log: Log,
  entry?: string,
): VisionClient | undefined {
  const setup = visionSetupOf(model);
  return (
    setup &&
    new VisionClient({
      setup,
      clock: systemClock,
      log,
      model: model.id,
      backoff: new Backoff(engine.backoffMinMs, engine.backoffMaxMs, Math.random),
      fork: (setup, clock, events) => new VisionProcess(setup, clock, events, entry),
    })
  );
}

/** `model`: with the path of its file. Undefined if it takes no images. */
export function visionSetupOf({
  file,
  gpu,
  vision,
  prefixCache,
}: Pick<ModelConfig, 'file' | 'gpu' | 'vision' | 'prefixCache'>): VisionSetup | undefined {
  if (!vision) return undefined;
  const { projector, maxTokensPerImage: maxTokens, maxPixels, threads, cores, devices, cacheBytes } = vision;
  return {
    file,
    projector: resolve(projector),
    threads,
    maxPixels,
    cacheBytes,
    maxAgeMs: prefixCache.maxAgeMs,
    heartbeatMs: HEARTBEAT_MS,
    gpu: devices === undefined ? false : gpu,
    ...(devices !== undefined && { device: String(devices) }),
    ...(cores !== undefined && { cores }),
    ...(maxTokens !== undefined && { maxTokens }),
  };
}

/** The longest chat template, bytes: some ten times the longest template in use. */
const MAX_TEMPLATE = 1024 * 1024;

/** The model's template settings from the configuration. Throws an error with a line for the operator if its template cannot be read. */
export function templateOf({
  id,
  chatTemplate,
  toolFormat,
}: Pick<ModelConfig, 'id' | 'chatTemplate' | 'toolFormat'>): TemplateSettings {
  if (chatTemplate === undefined) return { toolFormat };
  let text: string;
  try {
    text = readRegularSync(chatTemplate);
  } catch (error) {
    const why = error instanceof NotRegularFile ? 'it is not a regular file' : (error as NodeJS.ErrnoException).code;
    throw new Error(`model ${id}: chatTemplate cannot be read from ${chatTemplate}: ${why ?? 'unknown'}`, {
      cause: error,
    });
  }
  if (Buffer.byteLength(text) > MAX_TEMPLATE) {
    throw new Error(`model ${id}: chatTemplate is longer than ${MAX_TEMPLATE} bytes: ${chatTemplate}`);
  }
  return { chatTemplate: text, toolFormat };
}
