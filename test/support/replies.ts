/** Requests of tests to a chat model, and the parts of its answers. */
import { validateAnswer, type AnswerKind } from '../../sidecar/contracts/answer-schemas.js';
import { objectsIn, pathText, withAt, type At, type Json } from './bodies.js';
import { BARE_END } from './raw-http.js';
import type { Sidecar } from './sidecar.js';

export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly completion_tokens_details?: { readonly reasoning_tokens: number };
}

export interface Choice {
  readonly index: number;
  readonly message: { readonly role: string; readonly content: string; readonly reasoning_content?: string };
  readonly finish_reason: string;
  readonly matched_stop?: string | number;
}

export interface Completion {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly [Choice, ...Choice[]];
  readonly usage: Usage;
  readonly metadata: {
    readonly weight_version: string;
    readonly weight_versions: readonly { readonly version: string; readonly start: number; readonly end: number }[];
  };
}

export interface ErrorAnswer {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly code: string;
    readonly param: string | null;
  };
}

/** The answer, parsed. Throws if it violates the contract. */
export function checked(kind: AnswerKind, text: string): unknown {
  const outcome = validateAnswer(kind, JSON.parse(text));
  if (!outcome.ok) throw new Error(`not a ${kind} of the contract: ${outcome.path} ${outcome.message}`);
  return outcome.value;
}

/** One user turn, for a whole reply. */
export async function complete(
  sidecar: Sidecar,
  prompt: string,
  options: Readonly<Record<string, unknown>> = {},
): Promise<Completion> {
  const response = await sidecar.chat({ messages: [{ role: 'user', content: prompt }], ...options });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status} ${text}`);
  return checked('ChatCompletion', text) as Completion;
}

export async function textOf(
  sidecar: Sidecar,
  prompt: string,
  options?: Readonly<Record<string, unknown>>,
): Promise<string> {
  return (await complete(sidecar, prompt, options)).choices[0].message.content;
}

/** A refusal: its status and its error, checked against the contract. */
export async function refusalOf(response: Response): Promise<ErrorAnswer['error'] & { readonly status: number }> {
  const { error } = checked('Error', await response.text()) as ErrorAnswer;
  return { status: response.status, ...error };
}

/** One chunk of a stream. */
export interface Chunk {
  readonly id: string;
  readonly created: number;
  readonly system_fingerprint: string;
  readonly choices: readonly {
    readonly index: number;
    readonly delta: { readonly role?: string; readonly content?: string; readonly reasoning_content?: string };
    readonly finish_reason: string | null;
  }[];
  readonly usage?: Usage;
}

/** {@link BARE_END} where the body ends with it. */
const BARE_END_OF_BODY = new RegExp(BARE_END.source.slice(1));

/** The data of each event of a stream, comments left out. Throws on anything that is neither. */
export function eventsOf(body: string): string[] {
  const frames = body.replace(BARE_END_OF_BODY, '');
  if (!frames.endsWith('\n\n')) throw new Error('the stream ends within a frame');
  return frames
    .slice(0, -2)
    .split('\n\n')
    .flatMap((part) => {
      const frame = part.replace(/^(?:: [^\n]*(?:\n|$))+/, '');
      if (frame === '') return [];
      if (!/^data: [^\n]+$/.test(frame)) throw new Error('neither an event nor a comment');
      return [frame.slice('data: '.length)];
    });
}

/** All chunks of a stream that ended properly. */
export function chunksOf(body: string): Chunk[] {
  const events = eventsOf(body);
  if (events.pop() !== '[DONE]') throw new Error('the stream does not end with [DONE]');
  return events.map(
    (event) => checked(event.includes('"choices":[]') ? 'UsageChunk' : 'ChatCompletionChunk', event) as Chunk,
  );
}

/** The text of a stream with one choice. */
export function contentOf(chunks: readonly Chunk[]): string {
  return chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('');
}

/** Places of an answer where its schema accepts a further field, or the lack of one. `optional`, `maps`: paths where it should. */
export function looseIn(kind: AnswerKind, answer: Json, optional: RegExp, maps = /^$a/): string[] {
  const accepts = (at: At, value?: Json): string[] =>
    validateAnswer(kind, withAt(answer, at, value)).ok ? [pathText(at)] : [];
  return objectsIn(answer)
    .filter((at) => !maps.test(pathText(at)))
    .flatMap((at) => {
      const fields = Object.keys(
        at.reduce<Json>((of, step) => (of as Record<string, Json>)[step] ?? null, answer) ?? {},
      );
      const needed = fields.filter((name) => !optional.test(pathText([...at, name])));
      return [...accepts([...at, 'further'], 1), ...needed.flatMap((name) => accepts([...at, name]))];
    });
}
