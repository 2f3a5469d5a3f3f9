/**
 * Checked requests: what a body has become once it passed its schema. Inner code never checks again.
 *
 * Each has two halves. `params` is small and travels with the request through admission to the engine; the other half is
 * the caller's content, needed only to render the prompt, and stays with the code that parsed the body.
 */

import type { ServedTier } from '../domain/service-class.js';

export type ModelRoute = 'chat' | 'decisions' | 'systemone' | 'embeddings' | 'rerank';

/** All of them, in the order of the documentation. */
export const MODEL_ROUTES: readonly ModelRoute[] = ['chat', 'decisions', 'systemone', 'embeddings', 'rerank'];

/** What a key can be entitled to: `batch`: /files and /batches, whose lines need the entitlement of their own route too. */
export const KEY_ROUTES = [...MODEL_ROUTES, 'batch'] as const;
export type KeyRoute = ModelRoute | 'batch';

/**
 * The API by which a chat is asked for: the strict contract, the compatible one, POST /responses, or POST /messages. `billed`: the billing
 * line of Claude Code stays in the prompt.
 */
export type ChatForm = 'chat' | 'compatible' | 'compatible-billed' | 'responses' | 'messages' | 'messages-billed';

/** Which contract a body is checked against. */
export type BodyForm = ModelRoute | ChatForm;

/** A chat request without its conversation. Defaults are applied. */
export interface ChatParams {
  readonly route: 'chat';
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** Each chunk of the stream has the usage so far. Not in the strict contract. */
  readonly continuousUsage?: true;
  readonly n: number;
  /** max_completion_tokens, else max_tokens; absent: what is left of the seat's context. */
  readonly maxTokens?: number;
  /** The field of the body that `maxTokens` is of; absent: the route has one field for it. */
  readonly maxTokensField?: 'max_tokens' | 'max_completion_tokens';
  readonly temperature: number;
  readonly topP: number;
  /** Absent: no bound. The strict contract has neither. */
  readonly topK?: number;
  readonly minP?: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly seed?: number;
  readonly stops: readonly string[];
  readonly jsonObject: boolean;
  readonly reasoningEffort?: ReasoningEffort;
  /** The most tokens of thought of each reply, at least 1. Absent: no bound of its own. Not in the strict contract. */
  readonly thoughtBudget?: number;
  /** Types of the tools that were left out, without repetition: names of APIs, or `other`. Absent: none. */
  readonly toolsLeftOut?: readonly string[];
  /** The namespace of each function that is in one, by the name under which the function is offered (`namespacedName`). Absent: none is. */
  readonly namespaces?: Readonly<Record<string, string>>;
  /** Absent: no tools are offered, or `tool_choice` is `none`. */
  readonly calls?: CallChoice;
  /** JSON path of the first image part, when there is one. */
  readonly firstImage?: string;
  readonly user?: string;
  /** The tier that the body asks for. Absent: none is asked for. Not in the strict contract. */
  readonly tier?: ServedTier;
  /** The client's own id of the session that the request is a turn of. Absent: the body has none. */
  readonly sessionId?: string;
}

/** Which calls the caller wants of the tools offered. */
export interface CallChoice {
  /** The reply must call. */
  readonly required: boolean;
  /** The one function that must be called. */
  readonly name?: string;
  /** More than one call may be made. */
  readonly parallel: boolean;
}

/** `xhigh`, `max` and `ultra`: not in the strict contract. */
export type ReasoningEffort = 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max' | 'ultra';

export interface ChatRequest {
  readonly params: ChatParams;
  readonly conversation: Conversation;
  /** The JSON schema that the reply's content is constrained to. */
  readonly replySchema?: object;
  /** Where the body has {@link replySchema}: names of the contract. */
  readonly replySchemaAt?: readonly string[];
  /** For the chat template, by the names that it has for them. */
  readonly switches?: TemplateSwitches;
  /** Where the body has each message, if it does not have them as `messages`. */
  readonly places?: readonly MessagePlace[];
  /** Where the body has each tool of the conversation, if not as `tools` in the same order: paths. */
  readonly toolPlaces?: readonly string[];
}

/** Paths in a body. */
export interface MessagePlace {
  readonly at: string;
  /** Of each call of the message. */
  readonly calls: readonly string[];
}

/** What a caller sets in a chat template. */
export type TemplateSwitches = Readonly<Record<string, string | number | boolean | null>>;

/** What a chat template is given. Names are the wire's, since templates read them. */
export interface Conversation {
  readonly messages: readonly Message[];
  readonly tools?: readonly Tool[];
}

export type Message =
  | { readonly role: 'system'; readonly content: string; readonly name?: string }
  | { readonly role: 'user'; readonly content: string | readonly ContentPart[]; readonly name?: string }
  | {
      readonly role: 'assistant';
      readonly content?: string | null;
      readonly name?: string;
      readonly reasoning_content?: string | null;
      readonly tool_calls?: readonly ToolCall[];
    }
  /** Under the strict contract the content is a text. An image that cannot be shown becomes a line of text. */
  | { readonly role: 'tool'; readonly content: string | readonly ContentPart[]; readonly tool_call_id: string };

export type ContentPart =
  | { readonly type: 'text'; readonly text: string }
  | {
      readonly type: 'image_url';
      readonly image_url: { readonly url: string; readonly detail?: 'auto' | 'low' | 'high' };
    };

export interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: string };
}

export interface Tool {
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    readonly description?: string;
    readonly parameters: object;
    readonly strict?: boolean;
  };
}

/** What the answer to one question needs of it. `answers`: option names or level texts, in order; yes_no: ['yes','no']. */
export interface QuestionParams {
  readonly id: string;
  readonly type: 'yes_no' | 'choice' | 'score';
  readonly answers: readonly string[];
  /** A systemone score alone: its levels as JSON texts, which the answer's legend repeats as they were given. */
  readonly legend?: readonly string[];
}

/** A request on either decision route without its content. */
export interface DecisionParams {
  readonly route: 'decisions' | 'systemone';
  readonly model: string;
  readonly temperature: number;
  readonly questions: readonly QuestionParams[];
}

export interface DecisionRequest {
  readonly params: DecisionParams;
  /** The text all questions are about; systemone's state rendered as compact JSON unless it is a string. */
  readonly input: string;
  /** In the order of `params.questions`. */
  readonly questions: readonly QuestionText[];
}

/** The wording of one question. `meanings` are parallel to `answers`; an absent one is undefined. */
export interface QuestionText {
  readonly question: string;
  readonly meanings: readonly (string | undefined)[];
}

/** A request on POST /embeddings without its content. */
export interface EmbeddingParams {
  readonly route: 'embeddings';
  readonly model: string;
  /** How many. */
  readonly inputs: number;
  readonly encoding: 'float' | 'base64';
  /** Numbers of each vector; absent: as many as the model makes. */
  readonly dimensions?: number;
  readonly user?: string;
}

export interface EmbeddingRequest {
  readonly params: EmbeddingParams;
  /** Texts, or tokens. */
  readonly inputs: readonly (string | readonly number[])[];
  /** `input` is not a list, so that its place has no index. */
  readonly single: boolean;
  /** The ends of inputs that are too long are cut off; else the request is refused. */
  readonly truncate: boolean;
}

/** A request on POST /rerank without its content, unless that is a part of the answer. */
export interface RerankParams {
  readonly route: 'rerank';
  readonly model: string;
  /** How many documents. */
  readonly inputs: number;
  /** How many of them are in the answer. */
  readonly top: number;
  /** Texts for the answer; absent: it has none. */
  readonly documents?: readonly string[];
  readonly user?: string;
}

export interface RerankRequest {
  readonly params: RerankParams;
  readonly query: string;
  readonly documents: readonly string[];
  /** As in {@link EmbeddingRequest}. */
  readonly truncate: boolean;
}

export type ModelRequest = ChatRequest | DecisionRequest | EmbeddingRequest | RerankRequest;

export type Params = ModelRequest['params'];
