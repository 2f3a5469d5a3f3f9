import { totalmem } from 'node:os';
import type { MachineFacts } from '../../protocol/inspect-messages.js';
import { openLlama } from '../backend.js';
import { freeMemory } from '../memory/check.js';
import { engineAddon } from '../native.js';
import { getLlamaGpuTypes } from '../package.js';
import type { EngineSetup } from '../../protocol/setup.js';
import { usableCores } from '../../protocol/usable-cores.js';

/** What this machine has for an engine with this setting. */
export async function machineFacts(gpu: EngineSetup['gpu']): Promise<MachineFacts> {
  const usable = usableCores();
  const available = await getLlamaGpuTypes('supported');
  const llama = await openLlama(gpu);
  const { cpuRam } = await freeMemory(llama);
  const vram = llama.gpu === false ? undefined : await llama.getVramState();
  return {
    gpu: llama.gpu,
    available,
    devices: llama.gpu === false ? [] : await llama.getGpuDeviceNames(),
    build: llama.buildType,
    addon: engineAddon().raSources.replace('sources:', ''),
    features: llama.systemInfo.trim(),
    cores: usable.cores,
    ...(usable.quota !== undefined && { quota: { cores: usable.quota, present: usable.present } }),
    memory: { total: totalmem(), free: cpuRam },
    gpuMemory: vram && { total: vram.total, free: vram.free },
  };
}
