import { fileKey, sizeIn } from '../../engine/protocol/file-key.js';
import type { EngineState } from '../engine-client/engine.js';

/**
 * Bytes of weights of files other than `file` that engines have memory-mapped on a CPU. The kernel counts them as available,
 * although each step needs them. Weights of the same file exist once. Weights that an engine has repacked are not
 * mapped any more, and the kernel counts them as used. Called only while no other engine loads.
 */
export function mappedBeside(file: string, models: Iterable<Beside>): number {
  const others = new Map<string, number>();
  for (const { engine } of models) {
    for (const [at, { state, facts }] of engine.replicas.entries()) {
      // Replicas have different files while weights are replaced.
      const other = engine.setups[at]?.file ?? file;
      if (other === file || state !== 'ready' || facts?.gpu !== false) continue;
      others.set(other, Math.max(0, sizeOf(other) - (facts.repackedBytes ?? 0)));
    }
  }
  return [...others.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** The properties of a hosted model that are read. */
interface Beside {
  readonly engine: {
    readonly setups: readonly { readonly file: string }[];
    readonly replicas: readonly {
      readonly state: EngineState;
      readonly facts: { readonly gpu: string | false; readonly repackedBytes?: number } | undefined;
    }[];
  };
}

/** Of all parts; 0 of one that cannot be read: an unavailable network share must not end the process. */
function sizeOf(file: string): number {
  return sizeIn(fileKey(file) ?? '');
}
