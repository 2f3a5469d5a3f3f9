import type { GenerateJob, ScoreJob } from '../protocol/jobs.js';

/**
 * Why a job must not be passed to llama.cpp, or undefined: a token outside the vocabulary fails its whole batch, and
 * one among the labels would be read beyond the logits.
 */
export function jobProblem(job: GenerateJob | ScoreJob, vocabulary: number): string | undefined {
  const known = (tokens: Uint32Array): boolean => tokens.every((token) => token < vocabulary);
  const all =
    'prompt' in job
      ? job.prompt.every((segment) => known(segment.tokens))
      : known(job.input) && job.questions.every(({ tail, labels }) => known(tail) && known(labels));
  return all ? undefined : 'a token outside the vocabulary';
}
