import type { PromptConversation, PromptMessage, PromptPart } from './conversation.js';
import { splitAtMarks, unusedMark } from './data-text.js';

/** A conversation whose images are a mark in the text: a character that it has nowhere else. */
export type MarkedImages =
  | { readonly kind: 'none' }
  | {
      readonly kind: 'marked';
      readonly conversation: PromptConversation;
      readonly mark: string;
      readonly count: number;
    }
  /** Every character that could be the mark is in the text. */
  | { readonly kind: 'unmarkable' };

/**
 * Puts marks in place of images, as llama-server does with its own: a template is given text alone. A mark stands in the text
 * without line breaks around it; other parts are joined with one. `besides`: the caller's other strings that a template may write.
 */
export function markImages(conversation: PromptConversation, besides?: unknown): MarkedImages {
  const { messages } = conversation;
  const count = messages.reduce((sum, { content }) => sum + partsOf(content).filter(isImage).length, 0);
  if (count === 0) return { kind: 'none' };
  // Without the images' own data, which is long and has no such character.
  const texts = messages.map((message) => ({ ...message, content: joined(message, '') }));
  const mark = unusedMark([{ ...conversation, messages: texts }, besides]);
  if (mark === undefined) return { kind: 'unmarkable' };
  const marked = messages.map((message) =>
    partsOf(message.content).some(isImage) ? { ...message, content: joined(message, mark) } : message,
  );
  return { kind: 'marked', conversation: { ...conversation, messages: marked }, mark, count };
}

/** Pieces of a rendered text, split at the marks of images: the pieces before the first, between them, and after the last. */
export function sectionsOf(pieces: readonly string[], mark: string): readonly (readonly string[])[] {
  const sections: string[][] = [[]];
  for (const piece of pieces) {
    const [first = '', ...rest] = splitAtMarks(piece, mark);
    sections.at(-1)?.push(first);
    for (const each of rest) sections.push([each]);
  }
  return sections;
}

function partsOf(content: PromptMessage['content']): readonly PromptPart[] {
  return typeof content === 'string' || !content ? [] : content;
}

function isImage({ type }: PromptPart): boolean {
  return type === 'image_url';
}

function joined({ content }: PromptMessage, mark: string): string {
  if (typeof content === 'string') return content;
  let text = '';
  let afterImage = false;
  for (const part of partsOf(content)) {
    const image = isImage(part);
    if (!image && part.text === undefined) continue;
    if (!image && !afterImage && text !== '') text += '\n';
    text += image ? mark : (part.text ?? '');
    afterImage = image;
  }
  return text;
}
