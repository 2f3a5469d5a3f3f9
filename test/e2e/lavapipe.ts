import { copyFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Where Debian’s packages install the manifests that Vulkan’s loader reads. */
const DRIVERS = '/usr/share/vulkan/icd.d';

/** The path of the manifest of Mesa’s lavapipe, which implements Vulkan on a CPU; undefined: it is not installed. */
export function lavapipe(): string | undefined {
  try {
    const manifest = readdirSync(DRIVERS).find((name) => /^lvp_icd\b.*\.json$/.test(name));
    return manifest === undefined ? undefined : join(DRIVERS, manifest);
  } catch {
    return undefined;
  }
}

/**
 * In llama.cpp's fused kernels Debian 12's lavapipe (Mesa 22.3) crashes in many loads, but not in all: its queue's thread calls
 * through a null pointer.
 */
const WITHOUT_FUSION = { GGML_VK_DISABLE_FUSION: '1' };

/**
 * The environment of a process whose Vulkan loader finds lavapipe and no other driver. Throws if it is not installed.
 */
export function onLavapipe(device: 'taken' | 'passed over'): Record<string, string> {
  const manifest = lavapipe();
  if (manifest === undefined) throw new Error('Mesa’s Vulkan drivers are not installed');
  // Loaders before 1.3.207 read the older name. llama.cpp ignores devices that are CPUs unless one is named.
  const drivers = { VK_DRIVER_FILES: manifest, VK_ICD_FILENAMES: manifest, ...WITHOUT_FUSION };
  return device === 'taken' ? { ...drivers, GGML_VK_VISIBLE_DEVICES: '0' } : drivers;
}

/**
 * The same with two devices, 0 and 1: the loader finds the driver by two manifests, of which the second is a copy in `folder`.
 */
export function onTwoLavapipes(folder: string): Record<string, string> {
  const { VK_DRIVER_FILES: first = '' } = onLavapipe('passed over');
  const second = join(folder, 'second_icd.json');
  copyFileSync(first, second);
  const drivers = [first, second].join(':');
  return { VK_DRIVER_FILES: drivers, VK_ICD_FILENAMES: drivers, GGML_VK_VISIBLE_DEVICES: '0,1', ...WITHOUT_FUSION };
}
