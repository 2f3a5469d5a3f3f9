import type { ModelConfig } from '../config.js';
import { EMBEDDED_MODEL } from '../engine-client/embedded-model.js';

/** What the configuration calls the model that comes with the sidecar. */
export const EMBEDDED = 'embedded';

/** The model with the path of its file. */
export function withFile(model: ModelConfig): ModelConfig {
  return model.file === EMBEDDED ? { ...model, file: EMBEDDED_MODEL } : model;
}
