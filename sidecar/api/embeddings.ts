/**
 * POST /embeddings and POST /rerank: a vector or a score for each input. The work has parts, each of as many inputs as take the engine
 * about PART_MS: between two of them the request waits for its seat again, in turn with the requests of all accounts. So a list of
 * thousands holds a seat for no longer than others wait for theirs. A long list's vectors are sent as they are made, and its next part
 * waits until the caller has read them.
 */
import type { EmbeddingParams, RerankParams } from '../contracts/requests.js';
import { VECTORS_HEAD, vectorsTail, vectorText, rankedText } from '../contracts/input-answers.js';
import type { EmbedJob, Engine } from '../engine-client/engine.js';
import type { Clock } from '../lib/clock.js';
import type { BodyPieces } from '../http/exchange.js';
import * as refusals from './refusals.js';
import { failed, type Stop } from './request-context.js';
import {
  WORK_ERRORS,
  type InputTokens,
  type Job,
  type Plan,
  type Work,
  type WorkRequest,
  type WorkRoute,
} from './route.js';

/** The time that a part is to take, ms: others may wait so long for a seat. After each, nothing of it is computed for about a millisecond. */
const PART_MS = 100;

/** Tokens of the first part, at most, and bounds of those of later ones: the time that a token takes is not known, or measured badly. */
const FIRST_TOKENS = 4096;
const LEAST_TOKENS = 512;
const MOST_TOKENS = 65_536;

// By engine: tokens that would have taken PART_MS, as its last part of LEAST_TOKENS or more took. A shorter one, as all may be where
// inputs are long, only makes it more, and only if its next input was too long for it.
const lastWanted = new WeakMap<Engine, number>();

/** Numbers of a part's results, unless it has one input: some 7 MB of text, which wait in memory for a caller who reads slowly. */
const PART_NUMBERS = 524_288;

/** Vectors of more numbers than this in all are sent as they are made: some 800 KB of text. */
const WHOLE_NUMBERS = 65_536;

/** Documents for the answer stay in memory until then, outside of what bodies may take. */
const RERANK_BYTES = 8 * 1024 * 1024;

const COMMON = { method: 'post', tag: 'embeddings', key: true, errors: WORK_ERRORS } as const;

export const EMBEDDINGS: WorkRoute<EmbeddingParams, InputTokens> = {
  name: 'embeddings',
  operation: 'embeddings',
  entitlement: 'embeddings',
  kind: 'embedding',
  maxBytes: ({ chatBytes }) => chatBytes,
  form: () => 'embeddings',
  begin: embed,
  reference: {
    path: '/v1/embeddings',
    id: 'embed',
    summary: 'Make a vector of each input',
    description:
      'Vectors of length 1, by the pooling of the model’s file. Where a long answer fails midway, the connection is closed.',
    request: 'EmbeddingsRequest',
    answer: 'Embeddings',
    ...COMMON,
  },
};

export const RERANK: WorkRoute<RerankParams, InputTokens> = {
  name: 'rerank',
  operation: 'embeddings',
  entitlement: 'rerank',
  kind: 'rerank',
  maxBytes: ({ chatBytes }) => Math.min(chatBytes, RERANK_BYTES),
  form: () => 'rerank',
  begin: rerank,
  reference: {
    path: '/v1/rerank',
    id: 'rerank',
    summary: 'Score documents by a query',
    description: 'The documents, those that fit the query best first. The body has at most 8 MiB.',
    request: 'RerankRequest',
    answer: 'Ranking',
    ...COMMON,
  },
};

function embed(request: WorkRequest<EmbeddingParams>): Work<InputTokens> {
  const { params, model } = request;
  const vectors = new VectorWriter(request);
  return workOf(request, {
    check: ({ width }) => {
      const { dimensions } = params;
      if (dimensions === undefined || dimensions === width) return undefined;
      const least = model.leastDimensions;
      const fits = least !== undefined && dimensions >= least && dimensions <= width;
      return fits ? undefined : failed(refusals.dimensions(width, least));
    },
    vectors: (count, values) => vectors.add(count, values),
    drained: () => vectors.drained(),
    answer: (truncated) => vectors.end(truncated),
  });
}

function rerank(request: WorkRequest<RerankParams>): Work<InputTokens> {
  const { context, params, model } = request;
  const scores: number[] = [];
  return workOf(request, {
    vectors: (_, values) => scores.push(...values),
    answer: (truncated) => {
      const scale = model.engine.facts?.scores ?? 'logit';
      const body = rankedText(params, scores, scale, { promptTokens: context.promptTokens, truncated });
      context.reply({ status: 200, headers: { 'Server-Timing': context.times.header() }, body });
    },
  });
}

/** What the two routes do with their tokens and results. */
interface Answering {
  readonly check?: (tokens: InputTokens) => Stop | undefined;
  readonly vectors: (count: number, values: Float32Array) => void;
  readonly drained?: () => Promise<void> | undefined;
  readonly answer: (truncated: readonly number[]) => void;
}

function workOf(
  { context, model, account, services, weight }: WorkRequest<EmbeddingParams | RerankParams>,
  { check, vectors, drained, answer }: Answering,
): Work<InputTokens> {
  let parts: Parts | undefined;
  let truncated: readonly number[] = [];
  let version: string | undefined;
  let isMixed = false;
  return {
    kind: 'work',
    seatsWanted: 1,
    plan: (tokens): Plan | Stop => {
      const problem = check?.(tokens);
      if (problem) return problem;
      ({ truncated } = tokens);
      const promptTokens = (context.promptTokens = tokens.lengths.reduce((sum, length) => sum + length, 0));
      const { engine } = model;
      const inputs = Math.floor(PART_NUMBERS / Math.max(1, engine.facts?.width ?? tokens.width));
      parts = new Parts({ tokens, scope: model.scopeOf(account), weight, inputs, clock: services.clock, engine });
      const seatTokens = tokens.lengths.reduce((longest, length) => Math.max(longest, length), 0);
      return { kind: 'planned', needs: { promptTokens, seatTokens, prefix: NO_TOKENS }, job: parts.next() };
    },
    started: (weights) => {
      isMixed ||= version !== undefined && version !== weights;
      version = weights;
      // What no engine has begun is not billed.
      context.promptTokens = parts?.begun() ?? 0;
    },
    results: { kind: 'embed', vectors: ({ count, values }) => vectors(count, values) },
    next: () => {
      // Vectors of two models cannot be compared.
      if (isMixed) return failed(refusals.weightsChanged(), 'failed');
      parts?.ended();
      const job = parts?.next();
      if (!job) return undefined;
      const after = drained?.();
      return { kind: 'next', job, ...(after && { after }) };
    },
    answer: () => answer(truncated),
  };
}

/** The prefix of requests whose engines keep no state, and the head of inputs that begin with nothing in common. */
const NO_TOKENS = new Uint32Array(0);

interface PartsOptions extends Pick<EmbedJob, 'scope' | 'weight'> {
  readonly tokens: InputTokens;
  /** Inputs of a part, at most. */
  readonly inputs: number;
  readonly clock: Clock;
  readonly engine: Engine;
}

/** Divides a request's inputs into the parts of its work. */
class Parts {
  readonly #options: PartsOptions;
  /** The first input of the next part, and its first token. */
  #input = 0;
  #token = 0;
  #partTokens = 0;
  /** The next input was too long for it. */
  #isCut = false;
  #begunAt = 0;
  #wanted: number;

  constructor(options: PartsOptions) {
    this.#options = options;
    this.#wanted = Math.min(FIRST_TOKENS, lastWanted.get(options.engine) ?? FIRST_TOKENS);
  }

  /** The next part, of one input at least; undefined if there is none. */
  next(): Job | undefined {
    const { scope, weight, inputs } = this.#options;
    const { head = NO_TOKENS, tokens, lengths, promptVersion, pairs } = this.#options.tokens;
    const [from, first] = [this.#token, this.#input];
    while (this.#input < lengths.length) {
      const length = lengths[this.#input] ?? 0;
      this.#isCut = this.#token + length - from > this.#wanted;
      if (this.#input > first && (this.#isCut || this.#input - first >= inputs)) break;
      this.#token += length;
      this.#input += 1;
    }
    this.#partTokens = this.#token - from;
    if (this.#input === first) return undefined;
    const own = tokens.subarray(from - first * head.length, this.#token - this.#input * head.length);
    const partLengths = lengths.subarray(first, this.#input);
    return {
      scope,
      weight,
      tokens: withHeads(head, own, partLengths),
      lengths: partLengths,
      ...(promptVersion !== undefined && { promptVersion }),
      ...(pairs && { pairs: { query: pairs.query, documents: pairs.documents.slice(first, this.#input) } }),
    };
  }

  /** An engine has begun the part. Returns the tokens of all parts so far. */
  begun(): number {
    this.#begunAt = this.#options.clock.now();
    return this.#token;
  }

  /** The part is done: its time decides how many tokens the next one has. */
  ended(): void {
    const { clock, engine } = this.#options;
    const ms = Math.max(1, clock.now() - this.#begunAt);
    this.#wanted = Math.min(MOST_TOKENS, Math.max(LEAST_TOKENS, (this.#partTokens / ms) * PART_MS));
    // Of a few tokens most of the time is not theirs.
    const isMore = this.#isCut && this.#wanted > (lastWanted.get(engine) ?? Infinity);
    if (isMore || this.#partTokens >= LEAST_TOKENS) lastWanted.set(engine, this.#wanted);
  }
}

/** The tokens of inputs of these lengths, each of which begins with the head. `own`: their others. */
function withHeads(head: Uint32Array, own: Uint32Array, lengths: Uint32Array): Uint32Array {
  if (head.length === 0) return own;
  const whole = new Uint32Array(own.length + lengths.length * head.length);
  let [from, at] = [0, 0];
  for (const length of lengths) {
    whole.set(head, at);
    whole.set(own.subarray(from, (from += length - head.length)), at + head.length);
    at += length;
  }
  return whole;
}

/** Writes the vectors of one request, whole or as they are made. */
class VectorWriter {
  readonly #request: WorkRequest<EmbeddingParams>;
  #index = 0;
  /** What is not sent, if the answer is sent as a whole. */
  #text = VECTORS_HEAD;
  #pieces: BodyPieces | undefined;

  constructor(request: WorkRequest<EmbeddingParams>) {
    this.#request = request;
  }

  add(count: number, values: Float32Array): void {
    const width = values.length / count;
    const { dimensions = width, inputs, encoding } = this.#request.params;
    for (let i = 0; i < count; i += 1) {
      const vector = cut(values.subarray(i * width, (i + 1) * width), dimensions);
      this.#text += vectorText(this.#index, vector, encoding);
      this.#index += 1;
    }
    if (inputs * dimensions <= WHOLE_NUMBERS) return;
    this.#pieces ??= this.#request.context.pieces();
    this.#pieces.write(this.#text);
    this.#text = '';
  }

  drained(): Promise<void> | undefined {
    return this.#pieces?.drained();
  }

  end(truncated: readonly number[]): void {
    const { context, params } = this.#request;
    const { promptTokens, times } = context;
    const body = this.#text + vectorsTail(params.model, { promptTokens, truncated });
    if (this.#pieces) {
      this.#pieces.end(body);
      context.ended(200);
    } else context.reply({ status: 200, headers: { 'Server-Timing': times.header() }, body });
  }
}

/** The first numbers of a vector, at length 1 again. */
function cut(vector: Float32Array, dimensions: number): Float32Array {
  if (dimensions >= vector.length) return vector;
  const kept = vector.slice(0, dimensions);
  const length = Math.hypot(...kept);
  return length > 0 ? kept.map((value) => value / length) : kept;
}
