import type { LlamaModel } from 'node-llama-cpp';
import { makeDecisionPrompt } from '../prompt/decision-prompt.js';
import { callFormatText } from '../prompt/tool-use.js';
import type { TemplateSettings } from '../protocol/setup.js';
import { makePromptParts, toolsOf } from '../prompt/prompt-parts.js';
import { vocabularyOf } from './vocabulary.js';

/**
 * What a loaded model, with its weights or its vocabulary alone, can be used for. Of `chat` and `decisions`: why it cannot, in one line;
 * undefined if it can.
 */
export function usesOf(model: LlamaModel, template?: TemplateSettings) {
  const made = makePromptParts(vocabularyOf(model), template);
  if (made.kind === 'bad') {
    return { chat: made.problem, decisions: made.problem, tools: { native: false, chosen: false, says: made.problem } };
  }
  const decision = makeDecisionPrompt(made.parts);
  const tools = callFormatText(toolsOf(made.parts));
  return { chat: undefined, tools, decisions: decision.kind === 'ok' ? undefined : decision.problem };
}
