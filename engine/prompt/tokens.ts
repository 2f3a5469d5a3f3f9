/** A model's tokenizer, as the pure parts see it. Loaded by vocabulary.ts. */
export interface Vocabulary {
  /**
   * The text's tokens, with no token added before or after. `special`: texts of control tokens become those tokens. Texts of
   * user-defined tokens become theirs in either case: llama.cpp has no way to turn that off (see data-text.ts).
   * Native and not to be interrupted; long runs of one character can end the process with some vocabularies.
   */
  tokenize(text: string, special: boolean): Uint32Array;
  /** Names the tokenizer and its file's chat templates: SHA-256, hex. */
  readonly hash: string;
  /** `tokenizer.chat_template` of the GGUF. */
  readonly chatTemplate: string | undefined;
  /** `tokenizer.chat_template.tool_use` of the GGUF: for conversations that offer tools, in place of the other. */
  readonly toolTemplate: string | undefined;
  readonly bos: { readonly token: number; readonly text: string } | undefined;
  /** Empty: the vocabulary has none. */
  readonly eosText: string;
  /** Whether the model wants the BOS token before a prompt. */
  readonly addBos: boolean;
  /** What llama.cpp puts around whole inputs and between the parts of a pair. */
  readonly marks: InputMarks;
  /** Texts that `tokenize` turns into single tokens apart from the ordinary text around them: control, user-defined, unknown. */
  readonly specialTexts: readonly string[];
  readonly size: number;
  /** Numbers of a vector that the file's model makes; 0: the file does not say. */
  readonly width: number;
  /** No token stands for more bytes of text than this; Infinity: nothing is known. */
  readonly longestTokenBytes: number;
  /** What the GGUF has under `ra_sidecar.calibration`, unread; undefined if nothing is. */
  readonly calibration: unknown;
  /** Frees the native model. Idempotent. */
  dispose(): Promise<void>;
}

/** Tokens around the inputs of models that make vectors or scores. */
export interface InputMarks {
  /** Before and after an input. */
  readonly before: readonly number[];
  readonly after: readonly number[];
  /** Around and between the query and the document of a pair, where no template says otherwise. */
  readonly pair: {
    readonly before: readonly number[];
    readonly between: readonly number[];
    readonly after: readonly number[];
  };
  /** `tokenizer.chat_template.rerank`: a pair's text, with `{query}` and `{document}` in it. */
  readonly pairTemplate: string | undefined;
}

/** Put before a text whose tokens are to follow others, and taken off again. */
const LEAD = '\n';

/**
 * The tokens of a prompt given in parts, special tokens included. No special token is ever made of two parts' halves; apart
 * from that the result is as if the parts were one text, except that a word split by a part's edge stays split.
 */
export function tokenizeParts(vocabulary: Vocabulary, parts: readonly string[]): Uint32Array {
  const [first = '', ...rest] = parts;
  if (rest.length === 0) return vocabulary.tokenize(first, true);
  return concatTokens([vocabulary.tokenize(first, true), ...rest.map((part) => tokenizeFollowing(vocabulary, part))]);
}

/**
 * The tokens of a whole prompt in parts, with BOS where llama.cpp puts it: the template's own is taken off and the tokenizer's
 * put there instead, so that there is one and not two (common/chat.cpp, common_chat_template_direct_apply_impl).
 */
export function tokenizePrompt(vocabulary: Vocabulary, parts: readonly string[]): Uint32Array {
  const { bos } = vocabulary;
  if (!vocabulary.addBos || bos === undefined) return tokenizeParts(vocabulary, parts);
  const [first = '', ...rest] = parts;
  const head = bos.text !== '' && first.startsWith(bos.text) ? first.slice(bos.text.length) : first;
  return concatTokens([Uint32Array.of(bos.token), tokenizeParts(vocabulary, [head, ...rest])]);
}

export function concatTokens(pieces: readonly ArrayLike<number>[]): Uint32Array {
  const all = new Uint32Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** SentencePiece vocabularies put a space before every text that they are given: after a newline it is the newline that gets it. */
function tokenizeFollowing(vocabulary: Vocabulary, text: string): Uint32Array {
  const lead = vocabulary.tokenize(LEAD, false);
  const led = vocabulary.tokenize(LEAD + text, true);
  // Where the newline and the text made a token together, the space is put up with.
  return lead.every((token, at) => led[at] === token) ? led.subarray(lead.length) : vocabulary.tokenize(text, true);
}
