import type { Decoder } from './decoder.js';
import { Generation } from './generation.js';
import { Scoring } from './scoring.js';
import { generationFits, scoringFits, type StepLimits } from './step-limits.js';
import type { ModelTokens, Work } from './job.js';
import type { GenerateJob, ScoreJob } from '../protocol/jobs.js';

/** A chat completion as the step loop runs it; undefined: it does not fit the context. */
export function generationOf(
  id: number,
  job: GenerateJob,
  limits: StepLimits,
  model: ModelTokens,
  decoder: Decoder,
): Work | undefined {
  return generationFits(job, limits) ? new Generation(id, job, limits, model, decoder) : undefined;
}

/** The same of a decision. */
export function scoringOf(id: number, job: ScoreJob, limits: StepLimits): Work | undefined {
  return scoringFits(job, limits) ? new Scoring(id, job, limits) : undefined;
}
