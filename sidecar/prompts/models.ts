import type { PromptParts } from '../../engine/prompt/chat-prompt.js';
import { makeDecisionPrompt, type DecisionPrompt } from '../../engine/prompt/decision-prompt.js';
import { callFormatText } from '../../engine/prompt/call-format-text.js';
import { promptVersionOf } from '../../engine/prompt/prompt-version.js';
import { makePromptParts, toolsOf } from '../../engine/prompt/prompt-parts.js';
import type { Vocabulary } from '../../engine/prompt/tokens.js';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import type { ModelReport, PromptModel } from './messages.js';

/** One loaded model of a worker. */
export type LoadedModel = { readonly report: ModelReport; readonly model: PromptModel } & (
  | { readonly kind: 'chat'; readonly parts: PromptParts }
  | { readonly kind: 'decision'; readonly prompt: DecisionPrompt }
  | { readonly kind: 'broken' }
);

/**
 * Loads the models' tokenizers, one per file, and their templates. A model that cannot be served is reported, not
 * thrown: the others continue.
 */
export function loadModels(models: readonly PromptModel[]): Promise<LoadedModel[]> {
  const files = new Map<string, Promise<Vocabulary>>();
  return Promise.all(
    models.map(async (model) => {
      const vocabulary = files.get(model.file) ?? loadVocabulary(model.file);
      files.set(model.file, vocabulary);
      try {
        return prepareModel(model, await vocabulary);
      } catch (error) {
        return broken(model, error instanceof Error ? error.message : 'the file cannot be loaded');
      }
    }),
  );
}

function prepareModel(model: PromptModel, vocabulary: Vocabulary): LoadedModel {
  const made = makePromptParts(vocabulary, model.template);
  if (made.kind === 'bad') return broken(model, made.problem);
  const { parts } = made;
  const promptVersion = promptVersionOf(vocabulary.hash, model.template);
  const tools = toolsOf(parts);
  const { system } = parts.template.capabilities;
  const capable = { id: model.id, promptVersion, tools: tools.calls !== undefined, system };
  if (model.kind === 'chat') {
    return { kind: 'chat', model, report: { ...capable, calls: callFormatText(tools) }, parts };
  }
  const decision = makeDecisionPrompt(parts);
  if (decision.kind === 'bad') return broken(model, decision.problem);
  return { kind: 'decision', model, report: capable, prompt: decision.prompt };
}

function broken(model: PromptModel, problem: string): LoadedModel {
  return { kind: 'broken', model, report: { id: model.id, tools: false, system: false, problem } };
}
