import type { KeepLimits } from './saved-states.js';
import type { CacheOrigin } from '../protocol/cache-key.js';
import { DIGEST_BYTES, IMAGE_IDS, promptLength, type PromptSegment } from '../protocol/prompt.js';
import type { GenerateJob, ScoreJob } from '../protocol/jobs.js';
import type { EngineSetup } from '../protocol/setup.js';

type FromSetup = 'seats' | 'contextPerSeat' | 'prefillShare' | 'prefixReuse' | 'speculation' | 'prefillAhead';

/** What a step loop is made with. */
export interface StepLimits extends KeepLimits, Pick<EngineSetup, FromSetup> {
  /** Where prompts are split, and the most prompt tokens in one decode. */
  readonly prefillTokensPerStep: number;
  /** On a GPU: the time that a round with replies is to take, ms, in place of {@link prefillShare}. Absent: on a CPU. */
  readonly stepMs?: number;
  /** The loop owns the prompts' memory: it is overwritten with zeros when their job ends. Absent: false. */
  readonly ownsPrompts?: boolean;
  /** What the sequences' states are made with. */
  readonly origin: CacheOrigin;
  /** Time between two messages of outputs, ms. Absent: SEND_MS in outbox.ts. */
  readonly sendMs?: number;
}

/** What a job's prompts are planned with. */
export type WorkLimits = Pick<StepLimits, 'prefillTokensPerStep' | 'origin' | 'ownsPrompts' | 'speculation'>;

/** Whether a sequence has room for the prompt and the completion. */
export function generationFits({ prompt, maxTokens, n }: GenerateJob, { contextPerSeat }: StepLimits): boolean {
  const length = promptLength(prompt);
  return n > 0 && length > 0 && length + maxTokens <= contextPerSeat;
}

/** Whether a sequence has room for the input and each question. */
export function scoringFits({ input, questions }: ScoreJob, { contextPerSeat }: StepLimits): boolean {
  return (
    questions.length > 0 &&
    questions.every(
      ({ tail, labels }) => labels.length > 0 && tail.length > 0 && input.length + tail.length <= contextPerSeat,
    )
  );
}

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
