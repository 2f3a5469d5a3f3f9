/**
 * What the benches of a GPU share: the model, the backend, and how their results are kept.
 *
 *     node dist/bench/gpu/<bench>.js [8b | 8b-f16 | 13m] [cuda | vulkan | false] [brief]
 *
 * `brief` runs once in place of several times, with fewer loads: for a machine that is lent for minutes. A result's text says of how many runs it is.
 * `13m false` walks the whole way on a CPU: a trial of the bench, not a result; nothing is kept of it.
 */
import { execFileSync } from 'node:child_process';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import { random13m, random8b } from '../support/models.js';
import { keep, markdown, type Row } from '../support/results.js';

export interface GpuCase {
  readonly model: '8b' | '8b-f16' | '13m';
  readonly file: string;
  readonly gpu: EngineSetup['gpu'];
  /** Whether this only tries the bench on a CPU. */
  readonly trial: boolean;
  /** Whether each load runs once, and only the most telling ones. */
  readonly brief: boolean;
  /** Compute threads: they matter little when the layers are on the GPU. */
  readonly threads: number;
  /** Keeps `gpu-<name>-<model>`; shows the rows of a trial. */
  readonly keep: (name: string, title: string, about: string, rows: readonly Row[]) => Promise<void>;
}

/** From the three arguments after the `skip` ones of the bench's own. Throws if they name no model or backend. */
export async function gpuCase(skip = 0): Promise<GpuCase> {
  const [model = '8b', backend = 'cuda', length] = process.argv.slice(2 + skip);
  if (model !== '8b' && model !== '8b-f16' && model !== '13m') throw new RangeError(`no such model: ${model}`);
  if (backend !== 'cuda' && backend !== 'vulkan' && backend !== 'false')
    throw new RangeError(`no such GPU: ${backend}`);
  if (length !== undefined && length !== 'brief') throw new RangeError(`no such length: ${length}`);
  const trial = model === '13m';
  const gpu = backend === 'false' ? false : backend;
  const where = gpu === false ? 'On the CPU' : `${device()}; all layers on the GPU`;
  return {
    model,
    file: model === '13m' ? await random13m() : await random8b(model),
    gpu,
    trial,
    brief: trial || length === 'brief',
    threads: trial ? 1 : 4,
    keep: async (name, title, about, rows) => {
      if (trial) process.stdout.write(`${markdown(rows)}\n`);
      else
        await keep(`gpu-${name}-${model}`, {
          title: `${title}, ${model} on ${backend}`,
          about: [`${where}. ${about}`],
          rows,
        });
    },
  };
}

/** The GPU's name, memory and driver, as NVIDIA's own tool prints them; nothing is known of another maker's. */
function device(): string {
  const query = '--query-gpu=name,memory.total,driver_version';
  try {
    return execFileSync('nvidia-smi', [query, '--format=csv,noheader'], { encoding: 'utf8' })
      .trim()
      .replaceAll('\n', '; ');
  } catch {
    return 'a GPU without nvidia-smi';
  }
}
