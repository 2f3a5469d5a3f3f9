import type { GenerateJob, ScoreJob } from '../protocol/messages.js';

/**
 * Why a job must not reach llama.cpp, or undefined: a token that is not in the vocabulary fails the whole batch that it
 * is in, and one among the labels is read from beyond the logits.
 */
export function jobProblem(job: GenerateJob | ScoreJob, vocabulary: number): string | undefined {
  const known = (tokens: Uint32Array): boolean => tokens.every((token) => token < vocabulary);
  const all =
    'prompt' in job
      ? job.prompt.every((segment) => known(segment.tokens))
      : known(job.input) && job.questions.every(({ tail, labels }) => known(tail) && known(labels));
  return all ? undefined : 'a token outside the vocabulary';
}
