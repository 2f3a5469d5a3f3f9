/** Composes what reads a model's images: a supervised process, not started yet. */
import { resolve } from 'node:path';
import type { VisionSetup } from '../../engine/protocol/vision-messages.js';
import type { Config, ModelConfig } from '../config/config.js';
import { Backoff, systemClock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import { VisionClient } from '../vision/client.js';
import { VisionProcess } from '../vision/process.js';

/** `model`: with the path of its file. `entry`: of its process' module, absent: our own. Undefined: it takes no images. */
export function composeVision(
  { engine }: Pick<Config, 'engine'>,
  model: ModelConfig,
  log: Log,
  entry?: string,
): VisionClient | undefined {
  const setup = visionSetupOf(model, engine.heartbeatMs);
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

/** `model`: with the path of its file. Undefined: it takes no images. */
export function visionSetupOf(
  { file, gpu, vision, prefixCache }: Pick<ModelConfig, 'file' | 'gpu' | 'vision' | 'prefixCache'>,
  heartbeatMs: number,
): VisionSetup | undefined {
  if (!vision) return undefined;
  const { projector, maxTokensPerImage: maxTokens, maxPixels, threads, cores, devices, cacheBytes } = vision;
  return {
    file,
    projector: resolve(projector),
    threads,
    maxPixels,
    cacheBytes,
    maxAgeMs: prefixCache.maxAgeMs,
    heartbeatMs,
    gpu: devices === undefined ? false : gpu,
    ...(devices !== undefined && { device: String(devices) }),
    ...(cores !== undefined && { cores }),
    ...(maxTokens !== undefined && { maxTokens }),
  };
}
