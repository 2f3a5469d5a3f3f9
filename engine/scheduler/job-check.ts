import type { GenerateJob, ScoreJob } from '../protocol/jobs.js';
import { DIGEST_BYTES, IMAGE_IDS, type PromptSegment } from '../protocol/prompt.js';

/**
 * Why a job must not be passed to llama.cpp, or undefined: a token outside the vocabulary fails its whole batch, and
 * one among the labels would be read beyond the logits. An image must have an id for each place, and tokens after it, since
 * a reply continues from a token's logits.
 */
export function jobProblem(job: GenerateJob | ScoreJob, vocabulary: number): string | undefined {
  const known = (tokens: Uint32Array): boolean => tokens.every((token) => token < vocabulary);
  if ('prompt' in job) {
    const segmentProblem = job.prompt
      .map((segment) => problemOf(segment, known))
      .find((problem) => problem !== undefined);
    const ends = job.prompt.at(-1);
    return segmentProblem ?? (ends?.kind === 'image' ? 'an image without tokens after it' : undefined);
  }
  const all = known(job.input) && job.questions.every(({ tail, labels }) => known(tail) && known(labels));
  return all ? undefined : OUTSIDE;
}

const OUTSIDE = 'a token outside the vocabulary';

function problemOf(segment: PromptSegment, known: (tokens: Uint32Array) => boolean): string | undefined {
  if (segment.kind === 'tokens') return known(segment.tokens) ? undefined : OUTSIDE;
  const { tokens, digest, positions, columns } = segment;
  const right =
    tokens.length > 0 &&
    tokens.every((id) => id >= IMAGE_IDS) &&
    digest.length === DIGEST_BYTES &&
    isCount(positions, tokens.length) &&
    isCount(columns, tokens.length) &&
    positions > 0 &&
    (columns > 0 || positions === tokens.length);
  return right ? undefined : 'an image that is no image';
}

function isCount(value: number, most: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= most;
}
