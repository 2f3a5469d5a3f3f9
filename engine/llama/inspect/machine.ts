import type { Llama } from 'node-llama-cpp';
import { decodeOnce } from '../../scheduler/decoder.js';
import { totalmem } from 'node:os';
import type { MachineFacts, Computed } from '../../protocol/inspect-messages.js';
import { openLlama } from '../backend.js';
import { freeMemory } from '../memory/available.js';
import { engineAddon } from '../addon.js';
import { getLlamaGpuTypes } from '../package.js';
import type { EngineSetup } from '../../protocol/setup.js';
import { usableCores } from '../../protocol/usable-cores.js';
import { loadRuntime } from '../runtime.js';

/** Which binaries compute: llama.cpp's, and the digest of the sources of our addon. */
export function binariesOf({ buildType }: Pick<Llama, 'buildType'>): Pick<MachineFacts, 'build' | 'addon'> {
  return { build: buildType, addon: engineAddon().raSources.replace('sources:', '') };
}

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
    ...binariesOf(llama),
    features: llama.systemInfo.trim(),
    cores: usable.cores,
    ...(usable.quota !== undefined && { quota: { cores: usable.quota, present: usable.present } }),
    memory: { total: totalmem(), free: cpuRam },
    gpuMemory: vram && { total: vram.total, free: vram.free },
  };
}

/** As many as one step evaluates. */
const TOKENS = 32;

/**
 * Loads a small model on the backend that `gpu` selects and evaluates one step of it. If the backend has no kernels that this
 * device and its driver can run, llama.cpp aborts, which ends this process: only a step shows it. Rejects as `loadRuntime` does.
 */
export async function computeOnce(file: string, gpu: EngineSetup['gpu']): Promise<Computed> {
  const runtime = await loadRuntime({
    file,
    kind: 'chat',
    seats: 1,
    contextPerSeat: 2 * TOKENS,
    threads: 1,
    gpu,
    flashAttention: 'auto',
    prefillTokensPerStep: TOKENS,
    prefillShare: 100,
    prefixReuse: 'off',
    heartbeatMs: 1000,
  });
  const from = performance.now();
  const part = { kind: 'prefill', sequence: 0, tokens: new Uint32Array(TOKENS).fill(TOKENS) } as const;
  const [result] = await decodeOnce(runtime.decoder, [part]);
  const ms = performance.now() - from;
  await runtime.dispose();
  if (result?.kind !== 'filled') throw new Error(result?.kind === 'fault' ? result.reason : 'the step had no result');
  return { ms };
}
