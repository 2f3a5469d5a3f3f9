import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { promptPieces, type PromptParts } from '../../engine/prompt/chat-prompt.js';
import { sourceRoot } from '../support/source-root.js';
import type { GoldenConversation } from './conversations.js';

/** Where `make goldens` writes the hashes. */
export const GOLDENS_FILE = `${sourceRoot}/test/goldens/templates.json`;

/** Only hashes: the rendered texts quote the templates, which have licences of their own. */
export interface Goldens {
  /** The commit of llama.cpp that llama-server and the templates come from. */
  readonly llama: string;
  /** By template, then by conversation. */
  readonly templates: Readonly<Record<string, Readonly<Record<string, Outcome>>>>;
}

/** The hash of a rendered prompt. `none`: the conversation was refused. */
export type Outcome = string;

export async function readGoldens(): Promise<Goldens> {
  return JSON.parse(await readFile(GOLDENS_FILE, 'utf8')) as Goldens;
}

/** The hash of the prompt that the sidecar serves. */
export function ourOutcome(parts: PromptParts, conversation: GoldenConversation): Outcome {
  return outcomeOf(ourText(parts, conversation));
}

/** The text of the sidecar's prompt, without a BOS that the tokenizer adds. Undefined: the request is refused. */
export function ourText(parts: PromptParts, conversation: GoldenConversation): string | undefined {
  const rendered = piecesOf(parts, conversation);
  if (rendered.kind !== 'pieces') return undefined;
  const text = rendered.pieces.join('');
  // llama.cpp removes a BOS that its tokenizer will add from the text. tokenizePrompt() removes it from the tokens.
  const { addBos, bos } = parts.vocabulary;
  return addBos && bos !== undefined && text.startsWith(bos.text) ? text.slice(bos.text.length) : text;
}

/** The construct that the refusal of a conversation names. Undefined: it names none. */
export function ourRefusal(parts: PromptParts, conversation: GoldenConversation): string | undefined {
  const rendered = piecesOf(parts, conversation);
  return rendered.kind === 'failed' ? rendered.templateText : undefined;
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

/** `prompt`: undefined if the conversation was refused. */
export function outcomeOf(prompt: string | undefined): Outcome {
  return prompt === undefined ? 'none' : promptHash(prompt, new Date());
}

const DAY_MS = 86_400_000;

/**
 * The first 16 hex digits of SHA-256 of a rendered prompt. The dates of today and yesterday, in each form that templates use, are replaced first. `now`:
 * when it was rendered.
 */
function promptHash(text: string, now: Date): string {
  const undated = [now, new Date(now.getTime() - DAY_MS)]
    .flatMap(knownDatesOf)
    .reduce((rest, date) => rest.replaceAll(date, 'DATE'), text);
  return createHash('sha256').update(undated).digest('hex').slice(0, 16);
}

const known = new Map<string, string[]>();

/** To write a date by a locale takes as long as to render a template. */
function knownDatesOf(date: Date): string[] {
  const day = date.toDateString();
  const dates = known.get(day) ?? datesOf(date);
  known.set(day, dates);
  return dates;
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
