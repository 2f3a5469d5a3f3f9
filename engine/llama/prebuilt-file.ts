/** The file of node-llama-cpp's prebuilt addon for CPUs. Imports nothing of the package, whose modules take long to load. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The version of node-llama-cpp whose source was read. */
export const KNOWN_VERSION = '3.22.1';

/** The addon's file and what it was built with. */
export interface Prebuilt {
  readonly file: string;
  readonly metadata: unknown;
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
 * Undefined if node-llama-cpp has another version, if `getLlama` would prefer an addon that was built or downloaded, or if there
 * is none for this machine. `root`: the folder of node-llama-cpp. Throws file system errors other than a missing file.
 */
export function findPrebuilt(
  root = packageRoot(),
  { platform, arch }: Pick<NodeJS.Process, 'platform' | 'arch'> = process,
): Prebuilt | undefined {
  const name = `${platform}-${arch}`;
  if (existsSync(join(root, 'llama/localBuilds')) || existsSync(join(root, 'bins', name))) return undefined;
  const entry = entryOf(`@node-llama-cpp/${name}`, root);
  if (entry === undefined) return undefined;
  const folder = join(dirname(entry), '..');
  const file = join(folder, 'bins', name, 'llama-addon.node');
  const about = join(folder, 'bins', name, '_nlcBuildMetadata.json');
  if (packageVersion(root) !== KNOWN_VERSION || packageVersion(folder) !== KNOWN_VERSION) return undefined;
  if (!existsSync(file) || !existsSync(about)) return undefined;
  return { file, metadata: JSON.parse(readFileSync(about, 'utf8')) };
}

function entryOf(name: string, root: string): string | undefined {
  try {
    return createRequire(join(root, 'package.json')).resolve(name);
  } catch {
    return undefined;
  }
}

/** Flags of dlopen with which the addons of engine/native find llama.cpp's functions in an addon's libraries. */
export const GLOBAL = constants.dlopen.RTLD_NOW | constants.dlopen.RTLD_GLOBAL;

/** An instance of the addon, which has a logger of its own; undefined: it cannot be loaded. */
export function loadPrebuilt(file: string): unknown {
  try {
    const module: { exports: unknown } = { exports: {} };
    process.dlopen(module, file, GLOBAL);
    return module.exports;
  } catch {
    return undefined;
  }
}
