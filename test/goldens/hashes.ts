import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { promptPieces, type PromptParts } from '../../engine/prompt/chat-prompt.js';
import { sourceRoot } from '../support/source-root.js';
import type { GoldenConversation } from './conversations.js';

/** Where `make goldens` puts its findings. */
export const GOLDENS_FILE = `${sourceRoot}/test/goldens/templates.json`;

/** Hashes alone: the rendered texts hold the templates' own words, which are not ours to commit. */
export interface Goldens {
  /** The commit of the bundle that llama-server and the templates are of. */
  readonly llama: string;
  /** By template, then by conversation. */
  readonly templates: Readonly<Record<string, Readonly<Record<string, Outcome>>>>;
}

/** A rendered prompt's hash; `none`: it was not rendered. */
export type Outcome = string;

export async function readGoldens(): Promise<Goldens> {
  return JSON.parse(await readFile(GOLDENS_FILE, 'utf8')) as Goldens;
}

/**
 * What is served on our side.
 */
export function ourOutcome(parts: PromptParts, conversation: GoldenConversation): Outcome {
  return outcomeOf(ourText(parts, conversation));
}

/** The text of which the prompt is made, but for a BOS that the tokenizer adds; undefined: the request is refused. */
export function ourText(parts: PromptParts, conversation: GoldenConversation): string | undefined {
  const rendered = piecesOf(parts, conversation);
  if (rendered.kind !== 'pieces') return undefined;
  const text = rendered.pieces.join('');
  // llama.cpp leaves a BOS that its tokenizer will add out of the text; tokenizePrompt() does it with the tokens.
  const { addBos, bos } = parts.vocabulary;
  return addBos && bos !== undefined && text.startsWith(bos.text) ? text.slice(bos.text.length) : text;
}

/** What a refusal names; undefined: nothing. Of a conversation that is refused. */
export function ourRefusal(parts: PromptParts, conversation: GoldenConversation): string | undefined {
  const rendered = piecesOf(parts, conversation);
  return rendered.kind === 'failed' ? rendered.says : undefined;
}

function piecesOf(
  parts: PromptParts,
  { messages, tools, reasoningEffort, jsonObject }: GoldenConversation,
): ReturnType<typeof promptPieces> {
  return promptPieces(
    parts,
    { messages, ...(tools && { tools }) },
    {
      addGenerationPrompt: true,
      ...(tools && { calls: { required: false, parallel: true } }),
      ...(reasoningEffort !== undefined && { reasoningEffort }),
      ...(jsonObject !== undefined && { jsonObject }),
    },
  );
}

/** undefined: it was not rendered. */
export function outcomeOf(prompt: string | undefined): Outcome {
  return prompt === undefined ? 'none' : promptHash(prompt, new Date());
}

const DAY_MS = 86_400_000;

/** SHA-256 of a rendered prompt, in hex, with the dates of today and yesterday in whatever form made equal. `now`: when it was rendered. */
function promptHash(text: string, now: Date): string {
  const undated = [now, new Date(now.getTime() - DAY_MS)]
    .flatMap(datesOf)
    .reduce((rest, date) => rest.replaceAll(date, 'DATE'), text);
  return createHash('sha256').update(undated).digest('hex');
}

/** A day as templates write it: 2026-01-31, January 31, 2026, 31 Jan 2026, Jan 31 2026; in local time, as both renderers. */
function datesOf(date: Date): string[] {
  const part = (options: Intl.DateTimeFormatOptions): string => date.toLocaleDateString('en-US', options);
  const [year, month, day] = [`${date.getFullYear()}`, part({ month: '2-digit' }), part({ day: '2-digit' })];
  const short = part({ month: 'short' });
  return [
    `${year}-${month}-${day}`,
    `${part({ month: 'long' })} ${day}, ${year}`,
    `${day} ${short} ${year}`,
    `${short} ${day} ${year}`,
  ];
}
