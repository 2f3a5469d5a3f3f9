/** Makes the engine's job of a chat's prompt in tokens: its images, and the last checks. */
import type { ChatParams } from '../contracts/requests.js';
import type { ContractError } from '../domain/errors.js';
import { promptLength, type GenerateJob } from '../engine-client/engine.js';
import { prefixOf } from '../engine-client/prefixes.js';
import type { Vision } from '../vision/vision.js';
import { placeInPrompt, type ImagePrompt, type ImagesOf } from './images.js';
import { failed, type PreparedRequest } from './preflight.js';
import * as refusals from './refusals.js';
import type { RequestContext, Stop } from './request-context.js';
import type { JobImages } from './run-job.js';
import { seatLength } from './seat-length.js';
import type { JobPlan } from './job-plan.js';
import type { Tokens } from './seat-wait.js';
import type { Services } from './services.js';
import type { UsageSession } from './usage-session.js';

export type ChatTokens = Extract<Tokens, { readonly kind: 'chat' }>;

export interface ChatJobInput {
  readonly context: RequestContext;
  readonly prepared: PreparedRequest<ChatParams>;
  readonly usage: UsageSession;
  readonly services: Services;
}

export interface MadeJob extends JobPlan<GenerateJob> {
  readonly kind: 'made';
  readonly images?: JobImages;
}

/** Makes a job of a prompt in tokens, unless there is none. `contexts`: tokens of each seat length that the request may get. */
export async function makeJob(
  { context, prepared, usage, services }: ChatJobInput,
  tokens: ChatTokens | Stop,
  contexts: readonly number[],
): Promise<MadeJob | Stop> {
  if (tokens.kind !== 'chat') return tokens;
  const { model, params, caller } = prepared;
  const scope = model.scopeOf(caller.account);
  const param = params.firstImage ?? 'messages';
  const promptWithImages = await withImages(model.vision, tokens, { account: caller.account, scope, param });
  if (promptWithImages?.kind === 'refused') return failed(promptWithImages.error);
  const { format, promptVersion } = tokens;
  const prompted = {
    prompt: promptWithImages?.prompt ?? tokens.prompt,
    scope,
    ...(promptVersion !== undefined && { promptVersion }),
    ...(format && { format }),
  };
  const planned = plan(context, params, contexts, prompted, usage, services);
  if ('status' in planned) return failed(planned);
  return { kind: 'made', ...planned, ...(promptWithImages && { images: promptWithImages.images }) };
}

/** The prompt with its images; undefined: it has none. */
async function withImages(
  vision: Vision | undefined,
  { prompt, images }: ChatTokens,
  of: ImagesOf,
): Promise<ImagePrompt | undefined> {
  return vision && images && (await placeInPrompt(vision, prompt, images, of));
}

/** The last checks, now that the prompt's length is known, credit at the very end; and the job for the engine. */
function plan(
  context: RequestContext,
  params: ChatParams,
  contexts: readonly number[],
  { prompt, ...made }: Pick<GenerateJob, 'prompt' | 'scope' | 'format' | 'promptVersion'>,
  usage: UsageSession,
  services: Services,
): JobPlan<GenerateJob> | ContractError {
  const promptTokens = promptLength(prompt);
  const room = params.maxTokens === undefined ? seatLength(promptTokens, contexts) : (contexts.at(-1) ?? 0);
  const completionRoom = room - promptTokens;
  if (completionRoom < 1) return refusals.overContext(promptTokens, params.maxTokens ?? 1, room, 'messages');
  const maxTokens = Math.min(params.maxTokens ?? completionRoom, completionRoom);
  // Clients that do not know the model ask for more than its context: under the compatible contract that is no bound of their own.
  if (params.maxTokens !== undefined && maxTokens < params.maxTokens && services.contract === 'strict')
    return refusals.overCompletion(
      promptTokens,
      params.maxTokens,
      room,
      params.maxTokensField ?? 'max_completion_tokens',
    );
  context.promptTokens = promptTokens;
  const unpaid = usage.reserve(promptTokens, maxTokens * params.n);
  if (unpaid) return unpaid;
  const { n, temperature, topP, topK, minP, frequencyPenalty, presencePenalty, stops } = params;
  const narrowing = { ...(topK !== undefined && { topK }), ...(minP !== undefined && { minP }) };
  const seed = seed32(params.seed ?? Math.floor(services.random() * 2 ** 32));
  const sampling = { temperature, topP, ...narrowing, frequencyPenalty, presencePenalty, seed };
  return {
    needs: {
      promptTokens,
      seatTokens: promptTokens + maxTokens,
      prefix: prefixOf(prompt, made.scope),
    },
    job: { prompt, ...made, n, maxTokens, ...sampling, stops },
  };
}

/**
 * The sampler takes 32 unsigned bits; the contract's seed has 64 signed ones. What lies beyond the lower half counts too, rounded
 * towards 0, so that reply i is that of seed + i also for negative seeds, except where seed + i passes a multiple of 2^32.
 */
function seed32(seed: number): number {
  const whole = BigInt(Math.trunc(seed));
  return Number(BigInt.asUintN(32, whole) ^ BigInt.asUintN(32, whole / 2n ** 32n));
}
