import type { Computed } from '../../protocol/inspect-messages.js';
import type { EngineSetup } from '../../protocol/setup.js';
import { loadRuntime } from '../runtime.js';

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
  const [result] = await runtime.decoder.step([part]);
  const ms = performance.now() - from;
  await runtime.dispose();
  if (result?.kind !== 'filled') throw new Error(result?.kind === 'fault' ? result.reason : 'the step had no result');
  return { ms };
}
