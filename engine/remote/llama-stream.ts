import type { StreamEvent, StreamReader } from './adapter.js';
import { countOf, fieldsOf, textOf, tokensOf, type Fields } from './fields.js';

/**
 * Frames of llama-server's `/completion`. Tokens of an unfinished character are in none: the frame of the one that
 * finishes it has the text of all, and its count shows how many they were.
 */
export class LlamaStream implements StreamReader {
  readonly #promptTokens: number;
  #begun = false;
  /** Prompt tokens that were computed, as last reported. */
  #processed = 0;
  #tokens = 0;

  constructor(promptTokens: number) {
    this.#promptTokens = promptTokens;
  }

  read(frame: unknown): readonly StreamEvent[] {
    const fields = fieldsOf(frame);
    if ('error' in fields) return [{ kind: 'error', why: 'the server reports an error' }];
    if ('prompt_progress' in fields) return this.#progress(fieldsOf(fields['prompt_progress']));
    if (fields['stop'] === true) return this.#end(fields);
    if (fields['stop'] === false) return this.#more(fields);
    return [{ kind: 'error', why: 'an unknown frame' }];
  }

  #progress({ cache, total, processed }: Fields): readonly StreamEvent[] {
    if (total !== this.#promptTokens) return [{ kind: 'error', why: 'another number of prompt tokens' }];
    const before = this.#processed;
    this.#processed = Math.max(before, countOf(processed) ?? 0);
    if (this.#begun) return this.#processed > before ? [{ kind: 'progress' }] : [];
    this.#begun = true;
    return [{ kind: 'begun', cached: countOf(cache) ?? 0 }];
  }

  #more(fields: Fields): readonly StreamEvent[] {
    const tokens = tokensOf(fields['tokens']);
    const so = countOf(fields['tokens_predicted']);
    const text = textOf(fields['content']);
    if (tokens === undefined || so === undefined || text === undefined || !Array.isArray(fields['tokens']))
      return [{ kind: 'error', why: 'a frame without tokens' }];
    const missing = so - this.#tokens - tokens.length;
    const [first, ...rest] = tokens;
    if (missing < 0 || (missing > 0 && rest.length > 0)) return [{ kind: 'error', why: 'a wrong count of tokens' }];
    this.#tokens = so;
    if (first === undefined) return [];
    const late = missing > 0 && { late: { tokens: missing, text } };
    return [{ kind: 'token', token: first, ...late }, ...rest.map((token) => ({ kind: 'token' as const, token }))];
  }

  #end(fields: Fields): readonly StreamEvent[] {
    const completion = countOf(fields['tokens_predicted']);
    const prompt = countOf(fields['tokens_evaluated']);
    const cached = countOf(fieldsOf(fields['timings'])['cache_n']);
    if (completion === undefined || prompt === undefined) return [{ kind: 'error', why: 'an end without usage' }];
    if (prompt !== this.#promptTokens) return [{ kind: 'error', why: 'another number of prompt tokens' }];
    const usage = { kind: 'usage' as const, prompt, completion, ...(cached !== undefined && { cached }) };
    const type = fields['stop_type'];
    if (type === 'eos' || type === 'word') return [usage, { kind: 'finish', reason: 'stop' }];
    if (type === 'limit') return [usage, { kind: 'finish', reason: 'length' }];
    return [{ kind: 'error', why: 'an unknown end' }];
  }
}
