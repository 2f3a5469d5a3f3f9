import type { PromptParts } from './chat-prompt.js';
import { SpecialTexts } from './data-text.js';
import type { TemplateSettings } from '../protocol/template-settings.js';
import { makeTemplate } from './template.js';
import { thoughtsOf } from './thought-format.js';
import type { Vocabulary } from './tokens.js';

/**
 * What makes prompts for one model, by its file and what the operator says otherwise. `problem` is one line for the
 * operator: no prompt can be made.
 */
export function makePromptParts(
  vocabulary: Vocabulary,
  { chatTemplate, toolFormat }: TemplateSettings = {},
): { readonly kind: 'ok'; readonly parts: PromptParts } | { readonly kind: 'bad'; readonly problem: string } {
  const source = chatTemplate ?? vocabulary.chatTemplate;
  if (source === undefined) return { kind: 'bad', problem: 'the file has no chat template' };
  const made = makeTemplate(source, { bos: vocabulary.bos?.text ?? '', eos: vocabulary.eosText }, toolFormat);
  if (made.kind === 'bad') return made;
  const thoughts = thoughtsOf(source, vocabulary.specialTexts);
  const specials = new SpecialTexts(vocabulary.specialTexts);
  return { kind: 'ok', parts: { template: made.template, vocabulary, specials, ...(thoughts && { thoughts }) } };
}
