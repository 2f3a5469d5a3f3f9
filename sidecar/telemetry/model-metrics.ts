/** Requests to models, by OpenTelemetry's conventions for generative AI (in development, as of 1.37), and our own metrics. */
import type { ErrorCode } from '../domain/errors.js';
import { modelLabel, type Instruments } from './instruments.js';

/** The conventions' bounds for durations, in seconds, and further ones: a long reply on a CPU takes minutes. */
const DURATION_SECONDS = [
  0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
] as const;

/** The conventions' bounds, and longer ones for a full queue and a long prompt together. */
const FIRST_TOKEN_SECONDS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 120, 300, 600,
] as const;

/** The conventions' bounds, and shorter ones for small models and GPUs. */
const PER_TOKEN_SECONDS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5,
] as const;

/** The conventions' bounds, up to the largest context. */
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576] as const;

const ABOUT_MODEL = [
  'gen_ai_operation_name',
  'gen_ai_provider_name',
  'gen_ai_request_model',
  'gen_ai_response_model',
] as const;

/** OpenTelemetry defines chat and embeddings, which rerank counts as here; it has no name for decisions. */
export type Operation = 'chat' | 'decisions' | 'embeddings';

/** The phase of a request when its caller disconnected. */
const PHASES = ['waiting', 'prefilling', 'decoding'] as const;
export type RequestPhase = (typeof PHASES)[number];

/** The conventions' provider: the producer of the telemetry, not of the model. */
export const PROVIDER = 'ra-sidecar';

interface UsedTokens {
  readonly prompt: number;
  readonly cached: number;
  readonly completion: number;
  readonly drafted?: number;
  readonly accepted?: number;
}

/** Declares the metrics of requests to models. `ids`: of the configured models. */
export function modelMetrics(instruments: Instruments, ids: readonly string[]) {
  const durations = instruments.histogram('gen_ai_server_request_duration_seconds', 'seconds', {
    convention: { name: 'gen_ai.server.request.duration', unit: 's' },
    labels: [...ABOUT_MODEL, 'error_type'],
    help: 'Time from the head of a request for a model to the end of its answer, most refusals included.',
    advice: 'Find the part that grew: queue, first token or time per token.',
    buckets: DURATION_SECONDS,
  });
  const firstToken = instruments.histogram('gen_ai_server_time_to_first_token_seconds', 'seconds', {
    convention: { name: 'gen_ai.server.time_to_first_token', unit: 's' },
    labels: ABOUT_MODEL,
    help: 'Time from the last byte of a chat request to the first token of its reply.',
    advice:
      'If `ra_sidecar_queue_wait_seconds` is high too: more seats or machines. Else prompts are long: a larger `stepMs` (GPU) or `prefillShare` (CPU).',
    buckets: FIRST_TOKEN_SECONDS,
  });
  const perToken = instruments.histogram('gen_ai_server_time_per_output_token_seconds', 'seconds', {
    convention: { name: 'gen_ai.server.time_per_output_token', unit: 's' },
    labels: ABOUT_MODEL,
    help: 'Time per token of a finished reply, after its first.',
    advice: 'Fewer seats, a smaller `stepMs` or `prefillShare`, a smaller model or a faster machine.',
    buckets: PER_TOKEN_SECONDS,
  });
  const usage = instruments.histogram('gen_ai_client_token_usage', 'tokens', {
    convention: { name: 'gen_ai.client.token.usage', unit: '{token}' },
    labels: [...ABOUT_MODEL, 'gen_ai_token_type'],
    help: 'Tokens of a request that an engine started.',
    advice: 'If inputs are near `contextPerSeat`, give seats more context.',
    buckets: TOKENS,
  });
  const gaps = instruments.histogram('ra_sidecar_inter_token_seconds', 'seconds', {
    labels: ['model'],
    help: 'Time between two chunks of one reply as the engine delivers them.',
    advice: 'High tail with a low mean: long prompts delay replies; lower `stepMs` or `prefillShare`.',
    buckets: PER_TOKEN_SECONDS,
  });
  const cached = instruments.counter('ra_sidecar_cached_tokens_total', 'tokens', {
    labels: { model: ids },
    help: 'Prompt tokens whose state was reused, a part of the input tokens.',
    advice: 'A low share although prompts share prefixes: more seats, `prefixReuse`, `prefixCache.scope`.',
  });
  const drafted = instruments.counter('ra_sidecar_drafted_tokens_total', 'tokens', {
    labels: { model: ids },
    help: 'Tokens that engines drafted for finished replies (`speculation`). Drafts are not billed.',
    advice: 'Many beside few accepted ones: compare with `speculation: off`.',
  });
  const accepted = instruments.counter('ra_sidecar_accepted_tokens_total', 'tokens', {
    labels: { model: ids },
    help: 'Drafted tokens that replies have, each of which spared a decode.',
    advice: 'None: replies repeat nothing of their prompts.',
  });
  const cancels = instruments.counter('ra_sidecar_cancels_total', 'requests', {
    labels: { model: ids, phase: PHASES },
    help: 'Requests whose caller disconnected before the answer was complete.',
    advice: '`waiting` or `prefilling`: compare callers’ timeouts with the waits.',
  });
  /** One model under one operation. Times in ms. */
  const meterOf = (operation: Operation, model: string) => {
    // Resolved once, so that recording a token allocates no labels.
    const about = {
      gen_ai_operation_name: operation,
      gen_ai_provider_name: PROVIDER,
      gen_ai_request_model: model,
      gen_ai_response_model: model,
    };
    const toFirst = firstToken.labels(about);
    const perOne = perToken.labels(about);
    const between = gaps.labels({ model });
    const input = usage.labels(Object.assign({}, about, { gen_ai_token_type: 'input' }));
    const output = usage.labels(Object.assign({}, about, { gen_ai_token_type: 'output' }));
    const reused = cached.labels({ model });
    const draftedOf = drafted.labels({ model });
    const acceptedOf = accepted.labels({ model });
    return {
      /** A request has ended, whether it ran or was refused. `code`: of its error, or `request_cancelled`. */
      ended(durationMs: number, code?: ErrorCode): void {
        const labels = code === undefined ? about : Object.assign({}, about, { error_type: code });
        durations.observe(labels, durationMs / 1000);
      },
      firstToken: (afterMs: number): void => toFirst.observe(afterMs / 1000),
      /** Records a further chunk of a reply and its distance to the previous one. */
      piece: (afterMs: number): void => between.observe(afterMs / 1000),
      /** A reply is complete: the number of tokens after its first chunk, and their time. With 0 tokens nothing is recorded. */
      replied(tokens: number, ms: number): void {
        if (tokens > 0) perOne.observe(ms / 1000 / tokens);
      },
      /** A request that the engine had started has ended. `cached` is a part of `prompt`, `accepted` of `completion` and `drafted`. */
      used(tokens: UsedTokens): void {
        input.observe(tokens.prompt);
        output.observe(tokens.completion);
        reused.inc(tokens.cached);
        draftedOf.inc(tokens.drafted ?? 0);
        acceptedOf.inc(tokens.accepted ?? 0);
      },
    };
  };
  const labelOf = modelLabel(ids);
  /** By operation and model, both from closed lists. */
  const meters = new Map<string, ReturnType<typeof meterOf>>();
  return {
    /** The meter of requests of one kind to one model; the same object each time. */
    meter(operation: Operation, id: string): ReturnType<typeof meterOf> {
      const model = labelOf(id);
      const key = `${operation} ${model}`;
      let meter = meters.get(key);
      if (!meter) meters.set(key, (meter = meterOf(operation, model)));
      return meter;
    },
    /** The caller disconnected. */
    cancelled: (id: string, phase: RequestPhase): void => cancels.inc({ model: labelOf(id), phase }),
  };
}

export type ModelMeter = ReturnType<ReturnType<typeof modelMetrics>['meter']>;
