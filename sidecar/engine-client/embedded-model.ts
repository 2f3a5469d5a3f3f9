import { fileURLToPath } from 'node:url';

/**
 * Path of the model that comes with the sidecar, which `embedded` stands for in the configuration: the seedling. It lies beside the
 * sources, not in dist/, as it is no source. Read-only; whoever serves it maps it.
 */
export const EMBEDDED_MODEL = fileURLToPath(new URL('../../../engine/assets/seedling.gguf', import.meta.url));
