/** The files of node-llama-cpp's addons. Imports nothing of the package, whose modules take long to load. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The version of node-llama-cpp whose source was read. */
export const KNOWN_VERSION = '3.22.1';

/** What an addon computes on; false: the CPU. */
export type Backend = 'cuda' | 'vulkan' | 'metal' | false;

/** An addon's file and what it was built with. */
export interface AddonFile {
  readonly backend: Backend;
  readonly file: string;
  readonly metadata: unknown;
  readonly build: 'prebuilt' | 'localBuild';
  /** Where else its backends are looked for: CUDA has a package for older drivers. */
  readonly extensions?: string;
}

/** The folder of node-llama-cpp. */
function packageRoot(): string {
  return fileURLToPath(new URL('..', import.meta.resolve('node-llama-cpp')));
}

/** The version of node-llama-cpp that is installed. */
export function packageVersion(root = packageRoot()): string {
  return (JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { readonly version: string }).version;
}

/**
 * The addon for `backend`: one that `make engine-native` built, else the one of the package for this machine. Undefined if there is none,
 * or the package has another version. `root`: the folder of node-llama-cpp. Throws file system errors other than a missing file.
 */
export function findAddon(
  backend: Backend,
  root = packageRoot(),
  { platform, arch }: Pick<NodeJS.Process, 'platform' | 'arch'> = process,
): AddonFile | undefined {
  const name = [platform, arch, ...(backend === false ? [] : [backend])].join('-');
  const built = addonIn(join(root, 'llama/localBuilds', name, 'Release'));
  if (built !== undefined) return { backend, ...built, build: 'localBuild' };
  const folder = packageFolder(`@node-llama-cpp/${name}`, root);
  if (folder === undefined || packageVersion(folder) !== KNOWN_VERSION) return undefined;
  const found = addonIn(join(folder, 'bins', name));
  const more = packageFolder(`@node-llama-cpp/${name}-ext`, root);
  const extensions = more !== undefined && { extensions: join(more, 'bins', name) };
  return found && { backend, ...found, build: 'prebuilt', ...extensions };
}

function addonIn(folder: string): Pick<AddonFile, 'file' | 'metadata'> | undefined {
  const file = join(folder, 'llama-addon.node');
  const about = join(folder, '_nlcBuildMetadata.json');
  if (!existsSync(file) || !existsSync(about)) return undefined;
  return { file, metadata: JSON.parse(readFileSync(about, 'utf8')) };
}

function packageFolder(name: string, root: string): string | undefined {
  try {
    return join(dirname(createRequire(join(root, 'package.json')).resolve(name)), '..');
  } catch {
    return undefined;
  }
}

/** An instance of the addon, which has a logger of its own; undefined if it cannot be loaded. */
export function loadAddon(file: string): unknown {
  return dlopened(file, constants.dlopen.RTLD_NOW);
}

/**
 * From now on the addons of engine/native find llama.cpp's functions in the libraries of this addon, which is loaded. Call it for one
 * addon in a process: functions of two would be mixed up.
 */
export function shareAddon(file: string): void {
  dlopened(file, constants.dlopen.RTLD_NOW | constants.dlopen.RTLD_GLOBAL);
}

function dlopened(file: string, flags: number): unknown {
  try {
    const module: { exports: unknown } = { exports: {} };
    process.dlopen(module, file, flags);
    return module.exports;
  } catch {
    return undefined;
  }
}
