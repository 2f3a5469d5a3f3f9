/** The bundle’s chat templates, and those whose models write calls differently. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import type { PromptParts } from '../../engine/prompt/chat-prompt.js';
import type { Vocabulary } from '../../engine/prompt/tokens.js';
import { bundleCheckout } from './models.js';
import { bundleTemplate } from './prompt-models.js';

/** Names of all templates, without their ending. */
export async function bundleTemplates(): Promise<readonly string[]> {
  const files = await readdir(join(await bundleCheckout(), 'models/templates'));
  return files.filter((name) => name.endsWith('.jinja')).map((name) => name.slice(0, -'.jinja'.length));
}

/** One template of each format of calls and thoughts, with its parts; by name. */
export async function bundleFormats(vocabulary: Vocabulary): Promise<ReadonlyMap<string, PromptParts>> {
  const formats = new Map<string, PromptParts>();
  const known = new Set<string>();
  for (const name of await bundleTemplates()) {
    const made = makePromptParts(vocabulary, { chatTemplate: await bundleTemplate(name) });
    if (made.kind === 'bad') continue;
    const { template, thoughts } = made.parts;
    const look = JSON.stringify([template.calls, thoughts?.replyFormat('')]);
    if (known.has(look)) continue;
    known.add(look);
    formats.set(name, made.parts);
  }
  return formats;
}
