import type { LlamaModel } from 'node-llama-cpp';
import { makeDecisionPrompt } from '../prompt/decision-prompt.js';
import { makePromptParts } from '../prompt/prompt-parts.js';
import { vocabularyOf } from './vocabulary.js';

/** Why a loaded model cannot be used for something, in one line each; undefined: it can. */
export interface Uses {
  /** Its template cannot make prompts. */
  readonly chat: string | undefined;
  /** The same, or a label is not one distinct token behind the template. */
  readonly decisions: string | undefined;
}

/** What a loaded model, with its weights or its vocabulary alone, can be used for. */
export function usesOf(model: LlamaModel): Uses {
  const made = makePromptParts(vocabularyOf(model));
  if (made.kind === 'bad') return { chat: made.problem, decisions: made.problem };
  const decision = makeDecisionPrompt(made.parts);
  return { chat: undefined, decisions: decision.kind === 'ok' ? undefined : decision.problem };
}
