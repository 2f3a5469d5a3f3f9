import type { Llama } from 'node-llama-cpp';
import { findAddon } from '../../engine/llama/addon-file.js';
import { openAddon } from '../../engine/llama/backend.js';

/** llama.cpp on the CPU in this process, as engines open it, without its log lines. The caller disposes it. */
export async function cpuLlama(maxThreads?: number): Promise<Llama> {
  const found = findAddon(false);
  const llama = found && (await openAddon(found, { ...(maxThreads !== undefined && { maxThreads }) }));
  if (llama === undefined || typeof llama === 'string') throw new Error('there is no addon for this machine');
  return llama;
}
