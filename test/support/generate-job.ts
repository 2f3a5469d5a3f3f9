import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';
import type { GenerateJob } from '../../engine/protocol/jobs.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';

/** A job of one reply to this prompt of tokens, with `more` over it. */
export function generateJob(prompt: readonly number[], more: Partial<GenerateJob> = {}): GenerateJob {
  return {
    prompt: tokenPrompt(Uint32Array.from(prompt)),
    n: 1,
    seats: 1,
    maxTokens: 8,
    temperature: 1,
    topP: 1,
    frequencyPenalty: 0,
    presencePenalty: 0,
    seed: 1,
    stops: [],
    scope: ALL_ACCOUNTS,
    ...more,
  };
}
