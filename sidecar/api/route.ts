/** What a route of the public listener is, as data: its file exports a {@link WorkRoute} or a {@link PlainRoute} for public-routes.ts. */
import type { AnswerKind } from '../contracts/answer-schemas.js';
import type { BodyForm, ModelRoute, Params } from '../contracts/requests.js';
import { CATALOGUE, DENIALS, type ErrorCode } from '../domain/errors.js';
import type { SeatNeeds } from '../admission/types.js';
import type {
  EmbedJob,
  EmbedReceiver,
  GenerateJob,
  GenerationReceiver,
  ScoreJob,
  ScoreReceiver,
} from '../engine-client/engine.js';
import type { AnswerForm, Exchange, RequestHead } from '../http/exchange.js';
import type { NoResult, Refusal, Tokenized } from '../prompts/prompt-maker.js';
import type { Operation } from '../telemetry/model-metrics.js';
import type { JobImages } from './images.js';
import type { RequestContext, Stop } from './request-context.js';
import type { HostedModel, Services } from './services.js';
import type { Replies, UsageSession } from './usage-session.js';

export type Contract = Services['contract'];

/** A route as the documentation describes it. */
export interface RouteReference {
  readonly path: string;
  readonly method: 'get' | 'post' | 'delete';
  readonly id: string;
  readonly tag: 'chat' | 'decisions' | 'embeddings' | 'batches' | 'service';
  readonly summary: string;
  readonly description: string;
  /** Whether it asks for an API key. */
  readonly key: boolean;
  /** It is served under `contract: compatible` alone. */
  readonly compatibleOnly?: boolean;
  /** It is served where `batch.store` is set. */
  readonly needs?: 'batch';
  /** Named schema of the body. */
  readonly request?: string;
  /** The content type of a body that is a form. */
  readonly form?: 'multipart/form-data';
  /** The same under `contract: compatible`, where it differs. */
  readonly compatibleRequest?: string;
  /** Schema of the 200's body; `OpenApi`: the description itself; `Content`: a file. */
  readonly answer: AnswerKind | 'OpenApi' | 'Content';
  /** The same under `contract: compatible`, where it differs. */
  readonly compatibleAnswer?: AnswerKind;
  /** Schemas of the frames of a streamed 200. */
  readonly frames?: readonly AnswerKind[];
  /** Those that it has under `contract: compatible` besides. */
  readonly compatibleFrames?: readonly AnswerKind[];
  /** A status other than 200 that carries no error: its schema. */
  readonly other?: readonly [status: number, schema: AnswerKind, description: string];
  readonly errors: readonly ErrorCode[];
  /** Errors have the form and the statuses of the Messages API. */
  readonly messageErrors?: true;
  /** Those that it has under `contract: compatible` besides. */
  readonly compatibleErrors?: readonly ErrorCode[];
}

/** What any request can meet: a malformed head, a method that the path does not take, a fault of ours. */
export const ANY_ERRORS: readonly ErrorCode[] = ['bad_request', 'internal'];

/** What a source of identities may deny with. */
export const KEY_ERRORS: readonly ErrorCode[] = [
  'proxy_retired',
  ...DENIALS,
  'gateway_unavailable',
  'control_plane_overloaded',
  'credit_gate_unavailable',
];

/** The outcomes of work for a model. The answer to a cancelled request is never sent. */
export const WORK_ERRORS: readonly ErrorCode[] = (Object.keys(CATALOGUE) as ErrorCode[]).filter(
  (code) => !['not_found', 'request_cancelled', 'context_length_exceeded'].includes(code),
);

/** The form of the answers of one route under `contract: compatible`; undefined if they are like those of most routes. */
export type AnswerFormOf = (head: RequestHead) => AnswerForm | undefined;

/** A route that uses no model. */
export interface PlainRoute {
  readonly reference: RouteReference;
  readonly answerForm?: AnswerFormOf;
  serve(exchange: Exchange, services: Services): void | Promise<void>;
}

/** What the checks before the queue (preflight.ts) need to know of a route. */
export interface RouteChecks {
  /** In the log; requests of different names never share an Idempotency-Key. */
  readonly name: string;
  /** In metrics and traces, and the group of the key's limits. */
  readonly operation: Operation;
  /** What a key has to be entitled to; usage records name it. */
  readonly entitlement: ModelRoute;
  /** The kind of models that serve it, and of the prompts that are made of its bodies. */
  readonly kind: HostedModel['kind'];
  /** The longest body, in bytes. */
  maxBytes(limits: Services['limits']): number;
  /** What its bodies are checked against. */
  form(services: Pick<Services, 'contract' | 'billingLine'>): BodyForm;
  /** A key is also taken from the field `x-api-key`. */
  readonly takesApiKey?: true;
}

/** A route that uses a model: run.ts serves it. `T`: what its prompts are in tokens. */
export interface WorkRoute<P extends Params = Params, T extends Tokens = Tokens> extends RouteChecks {
  readonly kind: T['kind'];
  readonly reference: RouteReference;
  readonly answerForm?: AnswerFormOf;
  /** Its own names of a chat's fields, for the field that an error names. Absent: it has the same. */
  readonly fieldNames?: Readonly<Record<string, string>>;
  /** Makes what answers one request. Called once it passed all checks, before it enters the queue. */
  begin(request: WorkRequest<P>): Work<T> | Stop;
}

/** A request that passed the checks before the queue. */
export interface WorkRequest<P extends Params> {
  readonly context: RequestContext;
  readonly params: P;
  readonly account: string;
  /** Of the caller's class. */
  readonly weight: number;
  readonly model: HostedModel;
  readonly usage: UsageSession;
  readonly services: Services;
}

export type Tokens = Exclude<Tokenized, Refusal | NoResult>;
export type ChatTokens = Extract<Tokens, { readonly kind: 'chat' }>;
export type DecisionTokens = Extract<Tokens, { readonly kind: 'decision' }>;
export type InputTokens = Extract<Tokens, { readonly kind: 'embedding' | 'rerank' }>;

/** What answers one request: the engine's job, and what becomes of its results. */
export interface Work<T extends Tokens = Tokens> {
  readonly kind: 'work';
  /** Seats that it can use at once. */
  readonly seatsWanted: number;
  /**
   * The last checks, now that the prompt's length is known, and the job. Sets the context's `promptTokens`. It is called
   * again for a prompt that was made again. `contexts`: tokens of each seat length that the request may get, shortest first.
   */
  plan(tokens: T, contexts: readonly number[]): Plan | Stop | Promise<Plan | Stop>;
  readonly results: Results;
  /** The engine has begun the job, with these weights. */
  started?(weightVersion: string): void;
  /**
   * A part of the work is done. Returns the next one; undefined if there is none. `after`: it may begin once this settles, since the caller
   * has not read enough of what was sent. Absent: the work has one part.
   */
  next?(): NextPart | Stop | undefined;
  /** The job is done and its usage is recorded: writes the end of the answer. */
  answer(): void;
}

export type Job = Omit<GenerateJob, 'seats'> | Omit<ScoreJob, 'seats'> | Omit<EmbedJob, 'seats'>;

/** One of the parts of a request's work, after the first one. */
export interface NextPart {
  readonly kind: 'next';
  readonly job: Job;
  readonly after?: Promise<void>;
}

/** A job for the engine, but for its seats, and what the queue and the credit are to know of it. */
export interface Plan {
  readonly kind: 'planned';
  readonly needs: SeatNeeds & { readonly prefix: Uint32Array };
  /** Absent: nothing is generated. */
  readonly replies?: Replies;
  /**
   * With the prompt's tokens and grammars. Undefined once an engine has begun it, since a reply may take minutes, but for one on a lent
   * seat: it may be sent again.
   */
  job: Job | undefined;
  /** Embeddings of its prompt's images. Absent: it has none. */
  readonly images?: JobImages;
}

/** The events of a job that run.ts itself receives. */
export type RunEvents = Pick<
  GenerationReceiver,
  'started' | 'cached' | 'needsImage' | 'needsTokens' | 'seatFreed' | 'done' | 'failed'
>;

/** The methods of an engine's receiver that take a job's results. */
export type Results =
  | ({ readonly kind: 'generate' } & Omit<GenerationReceiver, keyof RunEvents>)
  | ({ readonly kind: 'score' } & Omit<ScoreReceiver, keyof RunEvents>)
  | ({ readonly kind: 'embed' } & Omit<EmbedReceiver, keyof RunEvents>);
