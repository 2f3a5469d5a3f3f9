import type { Part } from './decoder.js';

/** What decodes took lately, and so what the next one is likely to take. */
export class DecodeTimes {
  #nextTokensMs = Infinity;
  /** Milliseconds of each token, at the last step of prompts' alone. */
  #promptTokenMs = Infinity;

  /** Milliseconds of the last step of running replies' next tokens alone, or of each such step of the last run. */
  get nextTokensMs(): number {
    return this.#nextTokensMs;
  }

  /** The steps of a run took so many milliseconds each. */
  ran(stepMs: number): void {
    this.#nextTokensMs = stepMs;
  }

  /** A step of these parts took so many milliseconds. */
  took(parts: readonly Part[], ms: number): void {
    const prompts = promptTokens(parts);
    if (prompts === 0) this.#nextTokensMs = ms;
    else if (!parts.some(isNextToken)) this.#promptTokenMs = ms / prompts;
  }

  /** Milliseconds; Infinity: nothing like it was seen. */
  expected(parts: readonly Part[]): number {
    const prompts = promptTokens(parts);
    const promptsMs = prompts === 0 ? 0 : prompts * this.#promptTokenMs;
    return promptsMs + (parts.some(isNextToken) ? this.#nextTokensMs : 0);
  }
}

/** A running reply's next token. */
export function isNextToken({ kind, tokens }: Part): boolean {
  return kind === 'sample' && tokens.length === 1;
}

/** Tokens of parts that are more than a running reply's next token. */
function promptTokens(parts: readonly Part[]): number {
  return parts.reduce((sum, part) => (isNextToken(part) ? sum : sum + part.tokens.length), 0);
}
