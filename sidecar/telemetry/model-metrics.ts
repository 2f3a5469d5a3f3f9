/** Metrics of requests to models. */
import type { ErrorCode } from '../domain/errors.js';
import {
  CACHED_TOKENS,
  CANCELS,
  FIRST_TOKEN,
  INTER_TOKEN,
  MODEL_REQUEST_DURATION,
  PER_TOKEN,
  TOKEN_USAGE,
  type AboutModel,
} from './definitions/gen-ai.js';
import type { Counter, Histogram, Instruments } from './instruments.js';

/** OpenTelemetry defines chat; it has no name for decisions. */
export type Operation = 'chat' | 'decisions';

/** The phase of a request when its caller disconnected. */
const PHASES = ['waiting', 'prefilling', 'decoding'] as const;
export type RequestPhase = (typeof PHASES)[number];

/** The conventions' provider: the producer of the telemetry, not of the model. */
export const PROVIDER = 'ra-sidecar';

/** Tokens that a request used. `cached` is a part of `prompt`. */
export interface UsedTokens {
  readonly prompt: number;
  readonly cached: number;
  readonly completion: number;
}

/** Records values under fixed labels. */
interface Meter {
  observe(value: number): void;
}

/** One model under one operation. Created once and kept, so that recording a token allocates no labels. Times in ms. */
export class ModelMeter {
  readonly #about: Readonly<Record<AboutModel, string>>;
  readonly #durations: Histogram<AboutModel | 'error_type'>;
  readonly #firstToken: Meter;
  readonly #perToken: Meter;
  readonly #gaps: Meter;
  readonly #input: Meter;
  readonly #output: Meter;
  readonly #cached: { inc(by: number): void };

  constructor(operation: Operation, model: string, made: ModelInstruments) {
    const about = (this.#about = {
      gen_ai_operation_name: operation,
      gen_ai_provider_name: PROVIDER,
      gen_ai_request_model: model,
      gen_ai_response_model: model,
    });
    this.#durations = made.durations;
    this.#firstToken = made.firstToken.labels(about);
    this.#perToken = made.perToken.labels(about);
    this.#gaps = made.gaps.labels({ model });
    this.#input = made.usage.labels(Object.assign({}, about, { gen_ai_token_type: 'input' }));
    this.#output = made.usage.labels(Object.assign({}, about, { gen_ai_token_type: 'output' }));
    this.#cached = made.cached.labels({ model });
  }

  /** A request has ended, whether it ran or was refused. `code`: of its error, or `request_cancelled`. */
  ended(durationMs: number, code?: ErrorCode): void {
    const labels = code === undefined ? this.#about : Object.assign({}, this.#about, { error_type: code });
    this.#durations.observe(labels, durationMs / 1000);
  }

  firstToken(afterMs: number): void {
    this.#firstToken.observe(afterMs / 1000);
  }

  /** Records a further chunk of a reply and its distance to the previous one. */
  piece(afterMs: number): void {
    this.#gaps.observe(afterMs / 1000);
  }

  /**
   * A reply is complete: the number of tokens after its first chunk, and their time. With 0 tokens nothing is recorded.
   */
  replied(tokens: number, ms: number): void {
    if (tokens > 0) this.#perToken.observe(ms / 1000 / tokens);
  }

  /** A request that the engine had started has ended. */
  used({ prompt, cached, completion }: UsedTokens): void {
    this.#input.observe(prompt);
    this.#output.observe(completion);
    this.#cached.inc(cached);
  }
}

interface ModelInstruments {
  readonly durations: Histogram<AboutModel | 'error_type'>;
  readonly firstToken: Histogram<AboutModel>;
  readonly perToken: Histogram<AboutModel>;
  readonly usage: Histogram<AboutModel | 'gen_ai_token_type'>;
  readonly gaps: Histogram<'model'>;
  readonly cached: Counter<'model'>;
}

export class ModelMetrics {
  readonly #made: ModelInstruments;
  readonly #cancels: Counter<'model' | 'phase'>;
  /** By operation and model, both from closed lists. */
  readonly #meters = new Map<string, ModelMeter>();

  /** `models`: the configured ids. */
  constructor(instruments: Instruments, models: readonly string[]) {
    this.#made = {
      durations: instruments.histogram(MODEL_REQUEST_DURATION),
      firstToken: instruments.histogram(FIRST_TOKEN),
      perToken: instruments.histogram(PER_TOKEN),
      usage: instruments.histogram(TOKEN_USAGE),
      gaps: instruments.histogram(INTER_TOKEN),
      cached: instruments.counter(CACHED_TOKENS),
    };
    this.#cancels = instruments.counter(CANCELS);
    for (const model of models) {
      this.#made.cached.inc({ model }, 0);
      for (const phase of PHASES) this.#cancels.inc({ model, phase }, 0);
    }
  }

  meter(operation: Operation, model: string): ModelMeter {
    const key = `${operation} ${model}`;
    let meter = this.#meters.get(key);
    if (!meter) this.#meters.set(key, (meter = new ModelMeter(operation, model, this.#made)));
    return meter;
  }

  cancelled(model: string, phase: RequestPhase): void {
    this.#cancels.inc({ model, phase });
  }
}
