/**
 * A prompt: what a reply goes on from, as segments in their order. Text is the one kind today. A segment of another kind (an
 * image) has ids too, one for each of its places, so that lengths, prefix hashes and the reuse of a held prefix need no
 * knowledge of kinds.
 */
export type Prompt = readonly PromptSegment[];

/** Tokens that are evaluated as such. */
export interface PromptSegment {
  readonly kind: 'tokens';
  readonly tokens: Uint32Array;
}

/** A prompt of text alone, over the same memory. */
export function tokenPrompt(tokens: Uint32Array): Prompt {
  return [{ kind: 'tokens', tokens }];
}

/** Places of a context that it takes. */
export function promptLength(prompt: Prompt): number {
  let length = 0;
  for (const { tokens } of prompt) length += tokens.length;
  return length;
}

/** One id a place: two prompts whose ids begin alike have a prefix in common. A view where there is one segment. */
export function promptIds(prompt: Prompt): Uint32Array {
  const [first] = prompt;
  if (first && prompt.length === 1) return first.tokens;
  const ids = new Uint32Array(promptLength(prompt));
  let at = 0;
  for (const { tokens } of prompt) {
    ids.set(tokens, at);
    at += tokens.length;
  }
  return ids;
}
