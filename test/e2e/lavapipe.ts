import { readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Where Debian's packages put what Vulkan's loader reads of each driver. */
const DRIVERS = '/usr/share/vulkan/icd.d';

/** Mesa's lavapipe, which computes on a CPU what Vulkan asks of a GPU: the path of its manifest; undefined: it is not there. */
export function lavapipe(): string | undefined {
  try {
    const manifest = readdirSync(DRIVERS).find((name) => /^lvp_icd\b.*\.json$/.test(name));
    return manifest === undefined ? undefined : join(DRIVERS, manifest);
  } catch {
    return undefined;
  }
}

/** The environment of a process whose Vulkan has lavapipe and no other driver. Throws when it is not there. */
export function onLavapipe(device: 'taken' | 'passed over'): Record<string, string> {
  const manifest = lavapipe();
  if (manifest === undefined) throw new Error('Mesa’s Vulkan drivers are not there');
  // The older name is what loaders before 1.3.207 read. llama.cpp passes over devices that are a CPU, unless one is named.
  const drivers = { VK_DRIVER_FILES: manifest, VK_ICD_FILENAMES: manifest };
  return device === 'taken' ? { ...drivers, GGML_VK_VISIBLE_DEVICES: '0' } : drivers;
}
