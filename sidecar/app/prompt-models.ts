import type { TemplateSettings } from '../../engine/protocol/template-settings.js';
import type { Config } from '../config/config.js';
import type { PromptModel } from '../prompts/messages.js';
import { constrainsWholeReplies } from './compose-engine.js';
import type { ReplicaPlan } from './replica-plans.js';

/**
 * What prompt hosts need of the configured models. `files`: paths by configured file; `plans`, `templates`: by model.
 */
export function promptModelsOf(
  { models }: Pick<Config, 'models'>,
  files: ReadonlyMap<string, string>,
  plans: ReadonlyMap<string, readonly ReplicaPlan[]>,
  templates: ReadonlyMap<string, TemplateSettings>,
): readonly PromptModel[] {
  return models.map(({ id, kind, file, vision, engine }) => ({
    id,
    kind,
    ...(vision && { images: { maxImages: vision.maxImages, maxPixels: vision.maxPixels } }),
    ...(constrainsWholeReplies(engine.kind) && { wholeGrammars: true as const }),
    template: templates.get(id) ?? {},
    contextPerSeat: Math.max(...(plans.get(id) ?? []).map((replica) => replica.contextPerSeat)),
    file: files.get(file) ?? file,
  }));
}
