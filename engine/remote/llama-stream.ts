import type { StreamEvent, StreamReader } from './adapter.js';
import { countOf, fieldsOf, textOf, tokensOf, type Fields } from './fields.js';

/**
 * Frames of llama-server's `/completion`. Tokens of an unfinished character are in none: the frame of the one that
 * finishes it has the text of all, and its count shows how many they were.
 */
export class LlamaStream implements StreamReader {
  readonly #promptTokens: number;
  #begun = false;
  #tokens = 0;

  constructor(promptTokens: number) {
    this.#promptTokens = promptTokens;
  }

  read(frame: unknown): readonly StreamEvent[] {
    const said = fieldsOf(frame);
    if ('error' in said) return [{ kind: 'error', why: 'the server reports an error' }];
    if ('prompt_progress' in said) return this.#progress(fieldsOf(said['prompt_progress']));
    if (said['stop'] === true) return this.#end(said);
    if (said['stop'] === false) return this.#more(said);
    return [{ kind: 'error', why: 'an unknown frame' }];
  }

  #progress({ cache, total }: Fields): readonly StreamEvent[] {
    if (total !== this.#promptTokens) return [{ kind: 'error', why: 'another number of prompt tokens' }];
    if (this.#begun) return [{ kind: 'progress' }];
    this.#begun = true;
    return [{ kind: 'begun', cached: countOf(cache) ?? 0 }];
  }

  #more(said: Fields): readonly StreamEvent[] {
    const tokens = tokensOf(said['tokens']);
    const so = countOf(said['tokens_predicted']);
    const text = textOf(said['content']);
    if (tokens === undefined || so === undefined || text === undefined || !Array.isArray(said['tokens']))
      return [{ kind: 'error', why: 'a frame without tokens' }];
    const missing = so - this.#tokens - tokens.length;
    const [first, ...rest] = tokens;
    if (missing < 0 || (missing > 0 && rest.length > 0)) return [{ kind: 'error', why: 'a wrong count of tokens' }];
    this.#tokens = so;
    if (first === undefined) return [];
    const late = missing > 0 && { late: { tokens: missing, text } };
    return [{ kind: 'token', token: first, ...late }, ...rest.map((token) => ({ kind: 'token' as const, token }))];
  }

  #end(said: Fields): readonly StreamEvent[] {
    const completion = countOf(said['tokens_predicted']);
    const prompt = countOf(said['tokens_evaluated']);
    const cached = countOf(fieldsOf(said['timings'])['cache_n']);
    if (completion === undefined || prompt === undefined) return [{ kind: 'error', why: 'an end without usage' }];
    if (prompt !== this.#promptTokens) return [{ kind: 'error', why: 'another number of prompt tokens' }];
    const usage = { kind: 'usage' as const, prompt, completion, ...(cached !== undefined && { cached }) };
    const type = said['stop_type'];
    if (type === 'eos' || type === 'word') return [usage, { kind: 'finish', reason: 'stop' }];
    if (type === 'limit') return [usage, { kind: 'finish', reason: 'length' }];
    return [{ kind: 'error', why: 'an unknown end' }];
  }
}
