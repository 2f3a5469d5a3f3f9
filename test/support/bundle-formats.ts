/** The bundle’s chat templates, and those whose models write calls differently. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import { makeTemplate, type ChatTemplate } from '../../engine/prompt/template.js';
import type { PromptParts } from '../../engine/prompt/chat-prompt.js';
import type { Vocabulary } from '../../engine/prompt/tokens.js';
import { fakeVocabulary } from './fake-vocabulary.js';
import { bundleCheckout } from './models.js';
import { bundleTemplate } from './prompt-models.js';

/** Names of all templates, without their ending. */
export async function bundleTemplates(): Promise<readonly string[]> {
  const files = await readdir(join(await bundleCheckout(), 'models/templates'));
  return files.filter((name) => name.endsWith('.jinja')).map((name) => name.slice(0, -'.jinja'.length));
}

/** All templates that can be used, by name. */
export async function bundleChatTemplates(): Promise<ReadonlyMap<string, ChatTemplate>> {
  const templates = new Map<string, ChatTemplate>();
  for (const name of await bundleTemplates()) {
    const made = makeTemplate(await bundleTemplate(name), { bos: '<s>', eos: '</s>' });
    if (made.kind === 'ok') templates.set(name, made.template);
  }
  return templates;
}

/** Text in a template’s source that looks like a mark. Tests have each as a control token of a vocabulary. */
function templateMarks(source: string): readonly string[] {
  const found = source.match(
    /<[|｜]?\/?[A-Za-z][^<>\s'"{}]*[|｜]?>|<\/?[a-z_:]+=|\[\/?[A-Z_]{3,}\]|\]<\]minimax\[>\[|\]~!?b\[?\]?/g,
  );
  return [...new Set(found ?? [])];
}

export interface MarkedTemplate {
  readonly name: string;
  readonly parts: PromptParts;
  /** Each is a control token of its vocabulary. */
  readonly marks: readonly string[];
}

let marked: Promise<readonly MarkedTemplate[]> | undefined;

/** All templates that can be used, each with a vocabulary of its marks; made once for all test files of a process. */
export function markedTemplates(): Promise<readonly MarkedTemplate[]> {
  return (marked ??= makeMarked());
}

async function makeMarked(): Promise<readonly MarkedTemplate[]> {
  const all: MarkedTemplate[] = [];
  for (const name of await bundleTemplates()) {
    const chatTemplate = await bundleTemplate(name);
    const marks = templateMarks(chatTemplate);
    const made = makePromptParts(fakeVocabulary({ specials: marks }), { chatTemplate });
    if (made.kind === 'ok') all.push({ name, parts: made.parts, marks });
  }
  return all;
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
