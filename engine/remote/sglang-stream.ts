import type { StreamEvent, StreamReader } from './adapter.js';
import { countOf, fieldsOf, tokensOf } from './fields.js';

/** Frames of SGLang's `/generate`: `output_ids` are all so far, or with a switch of the server the new ones alone. */
export class SglangStream implements StreamReader {
  readonly #promptTokens: number;
  #seen = 0;

  constructor(promptTokens: number) {
    this.#promptTokens = promptTokens;
  }

  read(frame: unknown): readonly StreamEvent[] {
    const fields = fieldsOf(frame);
    if ('error' in fields) return [{ kind: 'error', why: 'the server reports an error' }];
    const ids = Array.isArray(fields['output_ids']) ? tokensOf(fields['output_ids']) : undefined;
    const { prompt_tokens, completion_tokens, cached_tokens, finish_reason } = fieldsOf(fields['meta_info']);
    const completion = countOf(completion_tokens);
    const prompt = countOf(prompt_tokens);
    if (ids === undefined || completion === undefined || prompt === undefined) {
      return [{ kind: 'error', why: 'a frame without tokens' }];
    }
    if (prompt !== this.#promptTokens) return [{ kind: 'error', why: 'another number of prompt tokens' }];
    const fresh = completion - this.#seen;
    if (fresh < 0 || (ids.length !== completion && ids.length !== fresh)) {
      return [{ kind: 'error', why: 'a wrong count of tokens' }];
    }
    this.#seen = completion;
    const cached = countOf(cached_tokens);
    const begun: StreamEvent = { kind: 'begun', cached: cached ?? 0 };
    const tokens = ids.slice(ids.length - fresh).map((token): StreamEvent => ({ kind: 'token', token }));
    const events = [begun, ...tokens];
    if (finish_reason === null || finish_reason === undefined) return events;
    const { type } = fieldsOf(finish_reason);
    if (type !== 'stop' && type !== 'length') {
      return [...events, { kind: 'error', why: type === 'abort' ? 'the server aborted it' : 'an unknown end' }];
    }
    const usage = { kind: 'usage' as const, prompt, completion, ...(cached !== undefined && { cached }) };
    return [...events, usage, { kind: 'finish', reason: type }];
  }
}
