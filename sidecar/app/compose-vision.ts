/** Composes what reads a model's images: a supervised process, not started yet. */
import { resolve } from 'node:path';
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
  const { projector, maxTokensPerImage: maxTokens, maxPixels, threads, cores, cacheBytes } = vision;
  return new VisionClient({
    setup: {
      file,
      projector: resolve(projector),
      threads,
      ...(cores !== undefined && { cores }),
      ...(maxTokens !== undefined && { maxTokens }),
      maxPixels,
      cacheBytes,
      heartbeatMs: engine.heartbeatMs,
    },
    clock: systemClock,
    log,
    model: id,
    backoff: new Backoff(engine.backoffMinMs, engine.backoffMaxMs, Math.random),
  });
}
