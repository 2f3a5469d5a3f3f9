import type { Llama } from 'node-llama-cpp';
import type { EngineSetup } from '../protocol/setup.js';
import type { LlamaLog } from './llama-log.js';
import { LoadFailure } from './load-failure.js';
import { getLlamaGpuTypes, LlamaLogLevel } from './package.js';
import { checkServed, openingGlobally } from './native.js';
import { openPrebuilt } from './prebuilt.js';

/**
 * llama.cpp with the backend that `gpu` selects; its errors go to `log`. The caller disposes it. Rejects with a {@link
 * LoadFailure} if there is no such backend, no device for it, which may become available later, or no engine for this system.
 */
export async function openLlama(gpu: EngineSetup['gpu'], log?: LlamaLog): Promise<Llama> {
  checkServed();
  const llama = await open(gpu, log);
  const named = gpu === false || gpu === 'auto' ? undefined : gpu;
  // An addon that was built here for a GPU says itself that it computes on the CPU when its backend finds no device.
  const onDevice = llama.gpu !== false && (await llama.getGpuDeviceNames()).length > 0;
  if (onDevice || (llama.gpu === false && named === undefined)) return llama;
  await llama.dispose();
  if (named !== undefined) throw new LoadFailure(`${named} finds no device on this machine`, true);
  // A driver's library without a GPU is common. llama.cpp would then compute on the CPU too, but without the settings
  // chosen for one.
  return await open(false, log);
}

async function open(gpu: EngineSetup['gpu'], log: LlamaLog | undefined): Promise<Llama> {
  // During callers' jobs llama.cpp's own lines may quote content: they are not logged.
  const logs = { logLevel: log ? LlamaLogLevel.error : LlamaLogLevel.disabled, ...(log && { logger: log.logger }) };
  const prebuilt = (await isCpu(gpu)) ? await openPrebuilt(logs) : undefined;
  if (prebuilt) return prebuilt;
  const { getLlama, NoBinaryFoundError } = await import('node-llama-cpp');
  try {
    return await openingGlobally(() =>
      getLlama({ gpu, build: 'never', skipDownload: true, progressLogs: false, ...logs }),
    );
  } catch (error) {
    if (!(error instanceof NoBinaryFoundError)) throw error;
    throw new LoadFailure(`there is no llama.cpp for the backend ${String(gpu)} on this machine`);
  }
}

/** Whether `getLlama` would try no backend for a GPU. */
async function isCpu(gpu: EngineSetup['gpu']): Promise<boolean> {
  if (gpu === 'auto') return (await getLlamaGpuTypes('supported')).every((type) => type === false);
  return gpu === false;
}
