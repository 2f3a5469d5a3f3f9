import { loadTokenFile } from '../../engine/llama/model-tokens.js';
import type { PromptParts } from '../../engine/prompt/chat-prompt.js';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import { embeddedTestModel } from './models.js';

/** What renders and tokenizes for the embedded test model. */
export async function embeddedParts(): Promise<PromptParts> {
  const { vocabulary } = await loadTokenFile(await embeddedTestModel());
  const made = makePromptParts(vocabulary);
  if (made.kind === 'bad') throw new Error(made.problem);
  return made.parts;
}
