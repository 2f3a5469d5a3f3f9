import type { Device, ModelConfig, ReplicaConfig } from './model-schema.js';

/** The devices that a replica names, as text; none: it sees all that there are. */
export function devicesOf({ devices = [] }: Pick<ReplicaConfig, 'devices'>): readonly string[] {
  return ([] as Device[]).concat(devices).map(String);
}

/** What is wrong with the devices that a model's replicas name: paths below the model's, each with `must ...`. */
export function deviceProblems({ replicas, gpu }: Pick<ModelConfig, 'replicas' | 'gpu'>): string[] {
  if (typeof replicas !== 'object') return [];
  const named = new Set<string>();
  return replicas.flatMap((replica, at) => {
    const devices = devicesOf(replica);
    if (gpu === false && devices.length > 0) return [`replicas[${at}].devices must not be set where gpu is false`];
    const twice = devices.filter((device, i) => named.has(device) || devices.indexOf(device) < i);
    for (const device of devices) named.add(device);
    return twice.map((device) => `replicas[${at}].devices must not name ${device} again`);
  });
}

/** The variables by which CUDA and llama.cpp's Vulkan are restricted to some devices. */
export const VISIBLE = { cuda: 'CUDA_VISIBLE_DEVICES', vulkan: 'GGML_VK_VISIBLE_DEVICES' } as const;

/**
 * Environment variables that restrict a process to these devices, for CUDA and for Vulkan. `here`: the environment of
 * this process: where it is restricted itself, indices count among the devices that it sees.
 */
export function deviceEnvironment(
  devices: readonly string[],
  here: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  if (devices.length === 0) return {};
  const cuda = { [VISIBLE.cuda]: through(here[VISIBLE.cuda], devices) };
  return devices.every(isIndex) ? { ...cuda, [VISIBLE.vulkan]: through(here[VISIBLE.vulkan], devices) } : cuda;
}

/** `visible`: the devices that are visible here; undefined for all. */
function through(visible: string | undefined, devices: readonly string[]): string {
  const here = visible?.split(',').map((device) => device.trim());
  // The index of a missing device is passed on, so that no device is visible.
  return devices.map((device) => (isIndex(device) && here ? (here[Number(device)] ?? ABSENT) : device)).join(',');
}

/** CUDA ends its list at the first index that no device has, and llama.cpp's Vulkan refuses it. */
const ABSENT = '-1';

/** Whether two names are of one device; a name may be the beginning of a UUID. Undefined: unknown, since one is an index, one a UUID. */
export function isSameDevice(one: string, other: string): boolean | undefined {
  if (isIndex(one) !== isIndex(other)) return undefined;
  return isIndex(one) ? one === other : one.startsWith(other) || other.startsWith(one);
}

/** Whether a device is named by its index, and not by a UUID. */
function isIndex(device: string): boolean {
  return /^\d+$/.test(device);
}
