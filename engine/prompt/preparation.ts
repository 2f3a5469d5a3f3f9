import { createHash } from 'node:crypto';
import type { TemplateSettings } from '../protocol/template-settings.js';

/**
 * Names what a prompt was made with: a tokenizer, by the hash of it, with the chat template, its file's own one unless the operator
 * set another. Prompts of one model fit another one with the same name.
 */
export function preparationOf(tokenizer: string, { chatTemplate, toolFormat }: TemplateSettings = {}): string {
  return createHash('sha256')
    .update(JSON.stringify([tokenizer, chatTemplate ?? null, toolFormat ?? null]))
    .digest('hex');
}
