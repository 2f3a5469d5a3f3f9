/** Which of node-llama-cpp's addons this checkout's engines load. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** npm's, or that of `make engine-native`. */
export type InstalledAddon = 'prebuilt' | 'native';

/** node-llama-cpp prefers what is here to its prebuilt addon. From dist/bench/support. */
export const NATIVE_ADDON = fileURLToPath(
  new URL('../../../node_modules/node-llama-cpp/llama/localBuilds', import.meta.url),
);

export function installedAddon(): InstalledAddon {
  return existsSync(NATIVE_ADDON) ? 'native' : 'prebuilt';
}
