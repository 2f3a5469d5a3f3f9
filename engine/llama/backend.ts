import { getLlama, LlamaLogLevel, NoBinaryFoundError, type Llama } from 'node-llama-cpp';
import type { EngineSetup } from '../protocol/messages.js';
import type { LlamaLog } from './llama-log.js';
import { LoadFailure } from './load-failure.js';

/**
 * llama.cpp with the backend that `gpu` asks for; its errors go to `log`. The caller disposes it. Rejects with a
 * {@link LoadFailure} when there is no such backend, or no device for it, which may still come up.
 */
export async function openLlama(gpu: EngineSetup['gpu'], log?: LlamaLog): Promise<Llama> {
  const llama = await open(gpu, log);
  if (llama.gpu === false || (await llama.getGpuDeviceNames()).length > 0) return llama;
  await llama.dispose();
  if (gpu === llama.gpu) throw new LoadFailure(`${gpu} finds no device on this machine`, true);
  // A driver's library with no GPU behind it is common. llama.cpp would then compute on the CPU as well, but with none of what
  // is chosen for one.
  return await open(false, log);
}

async function open(gpu: EngineSetup['gpu'], log: LlamaLog | undefined): Promise<Llama> {
  try {
    return await getLlama({
      gpu,
      build: 'never',
      skipDownload: true,
      progressLogs: false,
      logLevel: log ? LlamaLogLevel.error : LlamaLogLevel.disabled,
      // Of callers' jobs llama.cpp's own lines may quote what it works on: they stay out of the logs.
      ...(log && { logger: log.logger }),
    });
  } catch (error) {
    if (!(error instanceof NoBinaryFoundError)) throw error;
    throw new LoadFailure(`there is no llama.cpp for the backend ${String(gpu)} on this machine`);
  }
}
