import type { PromptParts } from './chat-prompt.js';
import { SpecialTexts } from './data-text.js';
import type { CallSyntax } from '../protocol/reply-format.js';
import type { TemplateSettings } from '../protocol/setup.js';
import { makeTemplate } from './template.js';
import { thoughtsOf } from './thought-format.js';
import type { ToolUse } from './tool-use.js';
import type { Vocabulary } from './tokens.js';
import { createHash } from 'node:crypto';

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
  const made = partsWith(vocabulary, source, toolFormat);
  const { toolTemplate } = vocabulary;
  if (made.kind === 'bad' || chatTemplate !== undefined || toolTemplate === undefined) return made;
  // As in llama.cpp, one that cannot be used is as if it were not there.
  const offering = partsWith(vocabulary, toolTemplate, toolFormat);
  return offering.kind === 'bad' ? made : { kind: 'ok', parts: { ...made.parts, offering: offering.parts } };
}

function partsWith(
  vocabulary: Vocabulary,
  source: string,
  toolFormat: string | undefined,
): ReturnType<typeof makePromptParts> {
  const made = makeTemplate(source, { bos: vocabulary.bos?.text ?? '', eos: vocabulary.eosText }, toolFormat);
  if (made.kind === 'bad') return made;
  const thoughts = thoughtsOf(source, vocabulary.specialTexts);
  const specials = new SpecialTexts([...vocabulary.specialTexts, ...tagsOf(made.template.calls)]);
  return { kind: 'ok', parts: { template: made.template, vocabulary, specials, ...(thoughts && { thoughts }) } };
}

/**
 * The tags around arguments, which are split in callers' texts although few vocabularies have tokens for them: an argument that has
 * the tags of another one in it would make the prompt of two arguments.
 */
function tagsOf(syntax: CallSyntax | undefined): readonly string[] {
  const { arguments: notation } = syntax ?? {};
  if (syntax === undefined || notation?.kind !== 'tagged') return [];
  const texts = [
    syntax.open,
    syntax.between,
    syntax.close,
    notation.open,
    ...Object.values(notation.between),
    notation.close,
  ];
  return texts.flatMap((text) => text.match(/<\/?[^\s<>="]+[=>]?/g) ?? []);
}

/** How the model of these parts is offered tools. */
export function toolsOf({ template, offering }: PromptParts): ToolUse {
  return (offering?.template ?? template).tools;
}

/**
 * Identifies what a prompt was made with: the tokenizer, by its hash, and the chat template, which is the file's own unless the
 * operator set another. A prompt made for one version of a model's weights fits another one with the same value.
 */
export function promptVersionOf(tokenizer: string, { chatTemplate, toolFormat }: TemplateSettings = {}): string {
  return createHash('sha256')
    .update(JSON.stringify([tokenizer, chatTemplate ?? null, toolFormat ?? null]))
    .digest('hex');
}
