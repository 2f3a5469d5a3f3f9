import type { TemplateSettings } from '../../engine/protocol/template-settings.js';
import type { ModelConfig } from '../config/config.js';
import { NotRegularFile, readRegularSync } from '../lib/checked-file.js';

/** The longest chat template, bytes: some ten times the longest template in use. */
const MAX_TEMPLATE = 1024 * 1024;

/**
 * The model's template settings from the configuration. Throws an error with a line for the operator if its template
 * cannot be read.
 */
export function templateOf({
  id,
  chatTemplate,
  toolFormat,
}: Pick<ModelConfig, 'id' | 'chatTemplate' | 'toolFormat'>): TemplateSettings {
  if (chatTemplate === undefined) return { toolFormat };
  let text: string;
  try {
    text = readRegularSync(chatTemplate);
  } catch (error) {
    const why = error instanceof NotRegularFile ? 'it is not a regular file' : (error as NodeJS.ErrnoException).code;
    throw new Error(`model ${id}: chatTemplate cannot be read from ${chatTemplate}: ${why ?? 'unknown'}`, {
      cause: error,
    });
  }
  if (Buffer.byteLength(text) > MAX_TEMPLATE) {
    throw new Error(`model ${id}: chatTemplate is longer than ${MAX_TEMPLATE} bytes: ${chatTemplate}`);
  }
  return { chatTemplate: text, toolFormat };
}
