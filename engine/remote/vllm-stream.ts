import type { StreamEvent, StreamReader } from './adapter.js';
import { countOf, fieldsOf, listOf, tokensOf } from './fields.js';

/** Frames of vLLM's `/v1/completions`: an error frame or an abort may be followed by `[DONE]`, so that proves nothing. */
export class VllmStream implements StreamReader {
  readonly #promptTokens: number;

  constructor(promptTokens: number) {
    this.#promptTokens = promptTokens;
  }

  read(frame: unknown): readonly StreamEvent[] {
    const fields = fieldsOf(frame);
    if ('error' in fields) return [{ kind: 'error', why: 'the server reports an error' }];
    const choices = fields['choices'];
    if (!Array.isArray(choices)) return [{ kind: 'error', why: 'an unknown frame' }];
    const events = choices.length === 0 ? [] : choiceEvents(choices[0]);
    const { usage } = fields;
    return usage === undefined || usage === null || choices.length > 0 ? events : [...events, this.#usage(usage)];
  }

  #usage(usage: unknown): StreamEvent {
    const { prompt_tokens, completion_tokens, prompt_tokens_details } = fieldsOf(usage);
    const prompt = countOf(prompt_tokens);
    const completion = countOf(completion_tokens);
    const cached = countOf(fieldsOf(prompt_tokens_details)['cached_tokens']);
    if (prompt === undefined || completion === undefined) return { kind: 'error', why: 'an end without usage' };
    if (prompt !== this.#promptTokens) return { kind: 'error', why: 'another number of prompt tokens' };
    return { kind: 'usage', prompt, completion, ...(cached !== undefined && { cached }) };
  }
}

function choiceEvents(choice: unknown): StreamEvent[] {
  const { token_ids, text, finish_reason } = fieldsOf(choice);
  const tokens = tokensOf(token_ids);
  if (tokens === undefined || (!Array.isArray(token_ids) && text !== '')) {
    return [{ kind: 'error', why: 'a frame without tokens' }];
  }
  const events: StreamEvent[] = listOf(tokens).map((token) => ({ kind: 'token', token: token as number }));
  if (finish_reason === null || finish_reason === undefined) return events;
  if (finish_reason === 'stop' || finish_reason === 'length')
    return [...events, { kind: 'finish', reason: finish_reason }];
  return [...events, { kind: 'error', why: finish_reason === 'abort' ? 'the server aborted it' : 'an unknown end' }];
}
