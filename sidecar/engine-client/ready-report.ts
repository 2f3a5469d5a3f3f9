import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { EngineFacts } from './engine.js';
import type { Log, LogFields } from '../telemetry/logger.js';

/** Logs that an engine process is ready, and what of its setup it could not have. `loadMs`: since its start. */
export function reportReady(
  log: Log,
  names: Pick<LogFields, 'model' | 'replica'>,
  facts: EngineFacts,
  { prefixCache, prefixReuse }: Pick<EngineSetup, 'prefixCache' | 'prefixReuse'>,
  loadMs: number,
): void {
  const { seats, gpu, prefixCacheBytes } = facts;
  log.info('engine ready', { ...names, seats, backend: gpu || 'cpu', durationMs: Math.round(loadMs) });
  for (const reason of facts.warnings ?? [])
    log.warn('external server should be started otherwise', { ...names, reason });
  const asked = prefixReuse === 'off' ? 0 : (prefixCache?.bytes ?? 0);
  if (prefixCacheBytes === undefined || prefixCacheBytes >= asked) return;
  const reason = 'prefixCache.bytes is more than /dev/shm can hold';
  log.warn('prefix cache is smaller than configured', { ...names, bytes: prefixCacheBytes, reason });
}
