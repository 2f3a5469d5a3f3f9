/**
 * What differs between the servers that this engine process can use (docs/engines.md): paths, fields, and what their frames
 * mean. An adapter sends token ids and receives token ids; text is made here, as for our own engine.
 */
import type { GenerateJob, ScoreJob } from '../protocol/jobs.js';
import type { RemoteSetup } from '../protocol/setup.js';
import type { ServerClient } from './server-client.js';

export interface ServerRequest {
  readonly path: string;
  readonly body: object;
}

/** What a frame of a reply's stream means. */
export type StreamEvent =
  /**
   * The server has taken the request and computes. `cached`: prompt tokens that it does not compute again; absent:
   * reported later.
   */
  | { readonly kind: 'begun'; readonly cached?: number }
  /** Its prompt has been computed further than when this was reported last. */
  | { readonly kind: 'progress' }
  /** `late`: as in `Reply.accept` (scheduler/reply.ts). */
  | {
      readonly kind: 'token';
      readonly token: number;
      readonly late?: { readonly tokens: number; readonly text: string };
    }
  /** Of the whole reply. */
  | { readonly kind: 'usage'; readonly prompt: number; readonly completion: number; readonly cached?: number }
  | { readonly kind: 'finish'; readonly reason: 'stop' | 'length' }
  /** It ends without a result. `why`: a constant, never the server's text. */
  | { readonly kind: 'error'; readonly why: string };

/** Reads one reply's stream. Keeps the state of earlier frames. */
export interface StreamReader {
  /** Interprets one frame's JSON. */
  read(frame: unknown): readonly StreamEvent[];
}

/** A question's labels as natural log-probabilities over the whole vocabulary, in their order. */
export type Scores =
  | { readonly kind: 'scores'; readonly logprobs: Float64Array; readonly cached?: number }
  /** Not taken now: 429 or 503. */
  | { readonly kind: 'busy' }
  /** The server may be gone. */
  | { readonly kind: 'broken' }
  | { readonly kind: 'failed'; readonly why: string };

/** One reading of a server's metrics. What it does not report is absent. */
export interface LoadReading {
  /** Requests that it computes, and requests that wait in it. */
  readonly running: number;
  readonly waiting?: number;
  /** Since its start: requests that it put back for want of memory; tokens that it computed. */
  readonly preempted?: number;
  readonly computed?: number;
  /** Part of its KV memory in use, 0 to 1. */
  readonly kvUse?: number;
}

/** What a server reports about itself at the start. */
export interface ServerFacts {
  /** Compared later: another value is another model, or the server was started with other settings. */
  readonly identity: string;
  /** Sequences at once, and tokens of each; absent: it does not say. */
  readonly slots?: number;
  readonly contextPerSlot?: number;
  readonly vocabulary?: number;
}

export type Opened =
  | { readonly kind: 'open'; readonly facts: ServerFacts }
  /** Nothing listens there, it loads, or it did not answer in time: asked again. `says`: as `why` of `unfit`. */
  | { readonly kind: 'not-yet'; readonly why: 'absent' | 'loading' | 'slow'; readonly says: string }
  /** One line for the operator, which follows the server's address. */
  | { readonly kind: 'unfit'; readonly why: string };

export interface ProbeMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

/** A conversation of our own. `text`: what our template makes of it, with the text of the first token if one is put there. */
export interface Probe {
  readonly messages: readonly ProbeMessage[];
  readonly text: string;
}

export interface Adapter {
  /** The server is given the stops of a job that has plain ones ({@link hasPlainStops}), and ends its replies there by itself. */
  readonly takesStops: boolean;
  /**
   * Its count of running requests, and what it says of its memory, are those of its last step: once all requests are aborted
   * it takes no step, and they stay.
   */
  readonly countLags: boolean;
  /**
   * Completion tokens that its usage may count though no frame had them: the end token, and where text is sent in whole
   * characters the tokens of one that never ended.
   */
  readonly mostUnseen: number;
  /** What the server reports about itself, and whether it can be used. */
  open(): Promise<Opened>;
  /** The server's own template and tokens of a conversation; undefined if it could not be asked. */
  promptIds(probe: Probe): Promise<readonly number[] | undefined>;
  /**
   * `choice`: of the job's replies. `name`: the server's name for the request. None is the beginning of another one:
   * SGLang aborts each request whose name begins with the one that it is given.
   */
  reply(job: GenerateJob, choice: number, name: string): ServerRequest;
  reader(promptTokens: number): StreamReader;
  /** What a line of a reply may need beside `MAX_LINE_BYTES` for each token that the reply may have, bytes. Absent: nothing. */
  readonly lineTokenBytes?: number;
  /** Never rejects. */
  score(job: ScoreJob, question: number, signal: AbortSignal): Promise<Scores>;
  /** Undefined if it did not answer. */
  load(): Promise<LoadReading | undefined>;
  /** Asks the server to stop a request whose connection was closed. */
  abort?(name: string): void;
}

export interface AdapterParts {
  readonly client: ServerClient;
  readonly setup: RemoteSetup;
}

/** How long a question about a server itself may take, ms. */
export const ASK_MS = 5000;

/** Whether a job's content stops are all that can end it before the model does, so that a server may be given them. */
export function hasPlainStops({ stops, format }: GenerateJob): boolean {
  return stops.length > 0 && format?.thought === undefined && format?.calls === undefined;
}
