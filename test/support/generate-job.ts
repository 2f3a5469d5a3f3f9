import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';
import type { GenerateJob, ScoreJob } from '../../engine/protocol/jobs.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import type { EngineJob, GenerationReceiver, JobHandle, ScoreReceiver } from '../../sidecar/engine-client/engine.js';

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

interface Runs {
  run(job: EngineJob): JobHandle;
}

export function runChat(engine: Runs, job: GenerateJob, receiver: GenerationReceiver): JobHandle {
  return engine.run({ kind: 'generate', job, receiver });
}

export function runDecision(engine: Runs, job: ScoreJob, receiver: ScoreReceiver): JobHandle {
  return engine.run({ kind: 'score', job, receiver });
}
