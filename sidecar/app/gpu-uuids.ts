/** NVIDIA's GPUs by the files of their driver, for which no process has to be started. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** One folder for each GPU, named by its place on the bus. */
const FOLDER = '/proc/driver/nvidia/gpus';

/**
 * The UUIDs of NVIDIA's GPUs, as CUDA counts them. Undefined: there is no such driver, or CUDA's order is not known, since
 * by default it puts the fastest first and they differ. `order`: the value of CUDA_DEVICE_ORDER.
 */
export function gpuUuids(order: string | undefined, folder = FOLDER): readonly string[] | undefined {
  let texts: readonly string[];
  try {
    const places = readdirSync(folder).sort();
    texts = places.map((place) => readFileSync(join(folder, place, 'information'), 'utf8'));
  } catch {
    return undefined;
  }
  const alike = new Set(texts.map((text) => fieldOf(text, 'Model'))).size === 1;
  const uuids = texts.map((text) => fieldOf(text, 'GPU UUID'));
  return (alike || order === 'PCI_BUS_ID') && uuids.every((uuid) => uuid !== undefined) ? uuids : undefined;
}

function fieldOf(text: string, name: string): string | undefined {
  return new RegExp(`^${name}:\\s*(.+?)\\s*$`, 'm').exec(text)?.[1];
}
