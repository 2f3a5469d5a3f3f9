import type { Llama } from 'node-llama-cpp';
import { openingGlobally } from '../../engine/llama/native.js';
import { LlamaLogLevel } from '../../engine/llama/package.js';
import { openPrebuilt } from '../../engine/llama/prebuilt.js';

/** llama.cpp on the CPU in this process, as engines open it, without its log lines. The caller disposes it. */
export async function cpuLlama(maxThreads?: number): Promise<Llama> {
  const options = { logLevel: LlamaLogLevel.disabled, ...(maxThreads !== undefined && { maxThreads }) };
  const prebuilt = await openPrebuilt(options);
  if (prebuilt) return prebuilt;
  const { getLlama } = await import('node-llama-cpp');
  return await openingGlobally(() => getLlama({ gpu: false, build: 'never', skipDownload: true, ...options }));
}
