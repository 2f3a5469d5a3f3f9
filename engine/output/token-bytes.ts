/**
 * The bytes of each token, from the GGUF's vocabulary. llama.cpp's detokenizer returns only whole strings, in which a
 * token that is part of a character has already become U+FFFD.
 */

/** `tokenizer.ggml.token_type` values that matter here (llama.cpp's llama_token_type). */
const TOKEN_TYPE = { control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

const NOTHING = new Uint8Array(0);

export interface VocabularyTexts {
  /** `tokenizer.ggml.model`: gpt2 (byte-level BPE), llama (SentencePiece), others. */
  readonly model: string;
  readonly tokens: readonly string[];
  /** `tokenizer.ggml.token_type`; some files have none. */
  readonly types: readonly number[] | undefined;
  /** Text of a token of a vocabulary that is neither of the two. */
  detokenize(token: number): string;
}

/** Token -> bytes, each computed once. Control tokens and ids outside the vocabulary have none. */
export function tokenBytes(vocabulary: VocabularyTexts): (token: number) => Uint8Array {
  const known = new Array<Uint8Array | undefined>(vocabulary.tokens.length);
  const bytesOf = (token: number): Uint8Array => {
    const text = vocabulary.tokens[token];
    const type = vocabulary.types?.[token];
    if (text === undefined || type === TOKEN_TYPE.control || type === TOKEN_TYPE.unused) return NOTHING;
    if (type === TOKEN_TYPE.userDefined) return Buffer.from(text);
    if (type === TOKEN_TYPE.byte) return Uint8Array.of(Number.parseInt(text.slice(3, 5), 16));
    if (vocabulary.model === 'gpt2') return fromByteLevel(text);
    if (vocabulary.model === 'llama') return Buffer.from(text.replaceAll('\u2581', ' '));
    return Buffer.from(vocabulary.detokenize(token));
  };
  return (token) => (known[token] ??= bytesOf(token));
}

/** Token -> the name of a control token; undefined for all others. */
export function controlText({ tokens, types }: VocabularyTexts): (token: number) => string | undefined {
  return (token) => (types?.[token] === TOKEN_TYPE.control ? tokens[token] : undefined);
}

/**
 * GPT-2's printable substitutes for bytes: printable Latin-1 represents itself, the other 68 bytes are U+0100 onwards.
 */
const BYTE_OF: ReadonlyMap<number, number> = (() => {
  const map = new Map<number, number>();
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    map.set(printable ? byte : next++, byte);
  }
  return map;
})();

function fromByteLevel(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const byte = BYTE_OF.get(character.codePointAt(0) ?? 0);
    // A character that is no substitute was added to the vocabulary as plain text.
    if (byte === undefined) bytes.push(...Buffer.from(character));
    else bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}
