import { fileURLToPath } from 'node:url';
import { PROTOCOL_VERSION, type ToEngine } from '../../engine/protocol/messages.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';

/** The engine process's own module. */
export const ENGINE_ENTRY = fileURLToPath(new URL('../../engine/main.js', import.meta.url));

/** A sidecar’s first message: a file to serve, on one seat of 256 tokens and one thread. */
export function start(file: string, more: Partial<EngineSetup> = {}): ToEngine {
  const setup: EngineSetup = {
    file,
    kind: 'chat',
    seats: 1,
    contextPerSeat: 256,
    threads: 1,
    gpu: false,
    flashAttention: 'auto',
    prefillTokensPerStep: 64,
    prefillShare: 100,
    prefixReuse: 'auto',
    heartbeatMs: 1000,
    memory: { mappedElsewhere: 0 },
    ...more,
  };
  return { v: PROTOCOL_VERSION, kind: 'start', setup };
}
