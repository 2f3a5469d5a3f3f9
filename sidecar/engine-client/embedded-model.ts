import { fileURLToPath } from 'node:url';

/**
 * Path of the bundled model, the seedling, which the configuration calls `embedded`. It is beside the sources, not in
 * dist/. Read-only; engines map it.
 */
export const EMBEDDED_MODEL = fileURLToPath(new URL('../../../engine/assets/seedling.gguf', import.meta.url));
