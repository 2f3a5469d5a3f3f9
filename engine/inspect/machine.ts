import { availableParallelism, totalmem } from 'node:os';
import { getLlama, getLlamaGpuTypes, LlamaLogLevel, NoBinaryFoundError, type Llama } from 'node-llama-cpp';
import type { MachineFacts } from '../inspect-protocol.js';
import { isOutdatedNative } from '../load/addon.js';
import type { LlamaLog } from '../load/llama-log.js';
import { LoadFailure } from '../load/load-failure.js';
import { freeMemory } from '../memory/check.js';
import type { EngineSetup } from '../protocol.js';

/** llama.cpp with the backend that an engine would use. Rejects when there is none of that name. */
export async function openLlama(gpu: EngineSetup['gpu'], log?: LlamaLog): Promise<Llama> {
  try {
    return await getLlama({
      gpu,
      build: 'never',
      skipDownload: true,
      progressLogs: false,
      logLevel: log ? LlamaLogLevel.error : LlamaLogLevel.disabled,
      ...(log && { logger: log.logger }),
    });
  } catch (error) {
    if (!(error instanceof NoBinaryFoundError)) throw error;
    throw new LoadFailure(`there is no llama.cpp for the backend ${String(gpu)} on this machine`);
  }
}

/** What this machine has for an engine with this setting. */
export async function machineFacts(gpu: EngineSetup['gpu']): Promise<MachineFacts> {
  const available = await getLlamaGpuTypes('supported');
  const llama = await openLlama(gpu);
  const { cpuRam } = await freeMemory(llama);
  const vram = llama.gpu === false ? undefined : await llama.getVramState();
  return {
    gpu: llama.gpu,
    available,
    devices: llama.gpu === false ? [] : await llama.getGpuDeviceNames(),
    build: isOutdatedNative(llama) ? 'outdatedBuild' : llama.buildType,
    features: llama.systemInfo.trim(),
    cores: availableParallelism(),
    memory: { total: totalmem(), free: cpuRam },
    gpuMemory: vram && { total: vram.total, free: vram.free },
  };
}
