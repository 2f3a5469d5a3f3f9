import { createHash } from 'node:crypto';
import type { TemplateSettings } from '../protocol/template-settings.js';

/**
 * Identifies what a prompt was made with: the tokenizer, by its hash, and the chat template, which is the file's own unless the
 * operator set another. A prompt made for one version of a model's weights fits another one with the same value.
 */
export function promptVersionOf(tokenizer: string, { chatTemplate, toolFormat }: TemplateSettings = {}): string {
  return createHash('sha256')
    .update(JSON.stringify([tokenizer, chatTemplate ?? null, toolFormat ?? null]))
    .digest('hex');
}
