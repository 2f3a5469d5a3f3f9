/** Composes what reads a model's images: a supervised process, not started yet. */
import { resolve } from 'node:path';
import type { VisionSetup } from '../../engine/protocol/vision-messages.js';
import type { Config, ModelConfig } from '../config/config.js';
import { Backoff } from '../lib/backoff.js';
import { systemClock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import { VisionClient } from '../vision/client.js';
import type { HostedVision } from '../vision/vision.js';

/** `model`: with the path of its file. Undefined: it takes no images. */
export function composeVision(
  { engine }: Pick<Config, 'engine'>,
  { id, file, vision }: ModelConfig,
  log: Log,
): HostedVision | undefined {
  if (!vision) return undefined;
  return new VisionClient({
    setup: visionSetupOf(file, vision, engine.heartbeatMs),
    clock: systemClock,
    log,
    model: id,
    backoff: new Backoff(engine.backoffMinMs, engine.backoffMaxMs, Math.random),
  });
}

/** `file`: path of the model. */
export function visionSetupOf(
  file: string,
  {
    projector,
    maxTokensPerImage: maxTokens,
    maxPixels,
    threads,
    cores,
    cacheBytes,
  }: NonNullable<ModelConfig['vision']>,
  heartbeatMs: number,
): VisionSetup {
  return {
    file,
    projector: resolve(projector),
    threads,
    maxPixels,
    cacheBytes,
    heartbeatMs,
    ...(cores !== undefined && { cores }),
    ...(maxTokens !== undefined && { maxTokens }),
  };
}
