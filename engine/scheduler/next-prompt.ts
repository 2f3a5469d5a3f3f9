/** What the next prompt of a conversation is likely to begin with, once its last reply is known. */
import type { CacheKey } from '../protocol/cache-key.js';
import type { EndedReply, ModelTokens } from './job.js';
import { TURN_GAP } from './prompt-plan.js';

/** A reply in the sequence that was freed with it. */
export interface HeldReply {
  readonly sequence: number;
  readonly reply: EndedReply;
  /** All that the sequence holds: a view. */
  readonly tokens: Uint32Array;
  readonly key: CacheKey;
}

/**
 * llama.cpp's regular expressions recurse over runs of similar characters, up to 2 KiB of stack for each, and may match a run of
 * white space with the one before it; this thread has 8 MB. A reply with a longer run is not tokenized here.
 */
const TOO_LONG_A_RUN = /\s{1000}|\S{1000}/u;

/**
 * The prompt, the reply as the next prompt's template will put it there, and how a turn ends and the next begins, as the prompt
 * itself shows. The reply's own tokens are not used: sampled tokens often differ from those that its text is made of when it
 * is tokenized. Where a template changes the text, the next prompt differs from here on, and only work is lost. Undefined:
 * nothing can be said. The caller owns the result.
 */
export function nextPrompt(held: HeldReply, model: ModelTokens): Uint32Array | undefined {
  const { from, tokens, last } = held.reply;
  const prompt = held.tokens.subarray(0, from);
  const evaluated = held.tokens.subarray(from, from + tokens);
  const change = turnChange(prompt, model);
  if (!model.tokenize || !change || evaluated.length < tokens - 1) return undefined;
  const header = prompt.findLastIndex((token) => model.control(token) !== undefined) + 1;
  const spoken = new Uint32Array(from - header + tokens);
  spoken.set(prompt.subarray(header));
  spoken.set(evaluated, from - header);
  if (evaluated.length < tokens) spoken[spoken.length - 1] = last;
  const text = textOf(spoken, model);
  spoken.fill(0);
  if (text === undefined || TOO_LONG_A_RUN.test(text)) return undefined;
  const said = model.tokenize(text);
  const next = new Uint32Array(header + said.length + change.length);
  next.set(prompt.subarray(0, header));
  next.set(said, header);
  next.set(change, header + said.length);
  said.fill(0);
  return next;
}

/** Undefined: one is a control token, such as that of a channel's header, which is no part of the text that callers get. */
function textOf(tokens: Uint32Array, model: ModelTokens): string | undefined {
  if (tokens.some((token) => model.control(token) !== undefined)) return undefined;
  return Buffer.concat(Array.from(tokens, (token) => model.bytes(token))).toString();
}

/** The tokens from the end of a turn to the one that begins the next: `<|im_end|>`, a line break, `<|im_start|>`. */
function turnChange(prompt: Uint32Array, model: ModelTokens): Uint32Array | undefined {
  const end = prompt.findLastIndex((token) => model.isEnd(token));
  if (end < 0) return undefined;
  const after = prompt.subarray(end + 1, end + 1 + TURN_GAP);
  const begins = after.findIndex((token) => model.control(token) !== undefined);
  return begins < 0 ? undefined : prompt.subarray(end, end + 2 + begins);
}
