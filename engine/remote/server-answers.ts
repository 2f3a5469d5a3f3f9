import type { RemoteSetup } from '../protocol/setup.js';
import { ASK_MS, type Opened, type Scores } from './adapter.js';
import type { ServerAnswer, ServerClient } from './server-client.js';
import { callGrammar } from '../grammar/calls.js';
import { grammarAfter } from '../grammar/gbnf.js';
import { marksOf } from '../output/calls/call-text.js';
import type { GenerateJob } from '../protocol/jobs.js';
import type { CallFormat } from '../protocol/reply-format.js';

/** What an answer that should be JSON means for the question that was asked. */
export async function jsonAnswer(
  answer: Promise<ServerAnswer>,
): Promise<Extract<ServerAnswer, { kind: 'json' }> | Exclude<Scores, { kind: 'scores' }>> {
  const got = await answer;
  switch (got.kind) {
    case 'json':
      return got;
    case 'status':
      return isBusy(got.status) ? { kind: 'busy' } : { kind: 'failed', why: `the server answered ${got.status}` };
    case 'text':
      return { kind: 'failed', why: 'no JSON' };
    case 'absent':
    case 'failed':
      return { kind: 'broken' };
  }
}

/** It refuses because of its load, or while it loads. */
export function isBusy(status: number): boolean {
  return status === 429 || status === 503;
}

/** Codes of connections that cannot be made secure, whenever they are tried. */
const INSECURE = /CERT|SIGNATURE|^EPROTO$|^ERR_SSL/;

/** What the operator reads for the operating system's codes. */
const NOT_THERE: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'it refuses connections (ECONNREFUSED): no process listens there',
  ENOENT: 'the socket does not exist (ENOENT)',
  ENOTFOUND: 'its host name is not known (ENOTFOUND)',
};

/** A server that cannot be used, now or as it is. */
export type NotOpen = Exclude<Opened, { kind: 'open' }>;

/** What each server of a kind has at two paths, once its health check has passed; or why it cannot be used. */
export async function openFacts(
  client: Pick<ServerClient, 'ask'>,
  kind: RemoteSetup['kind'],
  first: string,
  second: string,
): Promise<readonly [Fields, Fields] | NotOpen> {
  const early = notYet(await client.ask('GET', '/health', ASK_MS));
  if (early) return early;
  const ask = (path: string): Promise<ServerAnswer> => client.ask('GET', path, ASK_MS);
  const [one, other] = await Promise.all([ask(first), ask(second)]);
  const facts = factsOf(kind, first, one);
  if (facts.kind !== 'json') return facts;
  const others = factsOf(kind, second, other);
  return others.kind === 'json' ? [fieldsOf(facts.value), fieldsOf(others.value)] : others;
}

/** What the answer to a server's health check means; undefined if it is up. */
function notYet(health: ServerAnswer): NotOpen | undefined {
  if (health.kind === 'absent') {
    return { kind: 'not-yet', why: 'absent', says: NOT_THERE[health.why] ?? `it cannot be reached (${health.why})` };
  }
  if (health.kind === 'failed') return failed(health.why);
  if (health.kind !== 'status') return undefined;
  if (health.status === 503)
    return { kind: 'not-yet', why: 'loading', says: 'it answers 503, as while it loads its model' };
  const key = health.status === 401 || health.status === 403 ? ': engine.secretFile has no key that it accepts' : '';
  return { kind: 'unfit', why: `its health check is answered with ${health.status}${key}` };
}

/** The JSON of a path, or what its absence means. */
function factsOf(
  kind: RemoteSetup['kind'],
  path: string,
  answer: ServerAnswer,
): { readonly kind: 'json'; readonly value: unknown } | NotOpen {
  const other = `is it of engine.kind ${kind}?`;
  switch (answer.kind) {
    case 'json':
      return answer;
    case 'text':
      return { kind: 'unfit', why: `its ${path} is answered with text that is not JSON: ${other}` };
    case 'status':
      if (isBusy(answer.status))
        return { kind: 'not-yet', why: 'loading', says: `its ${path} is answered with ${answer.status}` };
      return { kind: 'unfit', why: `its ${path} is answered with ${answer.status}: ${other}` };
    case 'absent':
    case 'failed':
      return notYet(answer) ?? failed(answer.why);
  }
}

function failed(why: string): NotOpen {
  if (INSECURE.test(why)) return { kind: 'unfit', why: `the TLS handshake with it fails (${why})` };
  const says =
    why === 'timeout' ? `it does not answer within ${ASK_MS / 1000} s` : `the connection to it fails (${why})`;
  return { kind: 'not-yet', why: 'slow', says };
}

/*
 * Fields of JSON that another process sent: each is checked where it is read.
 */

export type Fields = Readonly<Record<string, unknown>>;

/** The value as an object with fields; any other value has none. */
export function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A whole number that is at least 0. */
export function countOf(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined;
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** Token ids; undefined if something else is among them. */
export function tokensOf(value: unknown): readonly number[] | undefined {
  const tokens = listOf(value);
  return tokens.every((token) => countOf(token) !== undefined) ? (tokens as readonly number[]) : undefined;
}

/** The grammar of a reply, in the form that a server is sent. */
export type ServerGrammar =
  /** The whole reply is constrained. */
  | { readonly kind: 'whole'; readonly gbnf: string }
  /** From one of these texts on, once it occurs. */
  | { readonly kind: 'lazy'; readonly gbnf: string; readonly marks: readonly string[] };

/** Undefined if the reply is unconstrained. */
export function serverGrammar({ format }: GenerateJob): ServerGrammar | undefined {
  const grammar = format?.grammar;
  if (grammar) {
    const { gbnf, after } = grammar;
    return { kind: 'whole', gbnf: after === undefined ? gbnf : grammarAfter(after, gbnf) };
  }
  const calls = format?.calls;
  if (calls?.gbnf === undefined) return undefined;
  return { kind: 'lazy', gbnf: callGrammar(calls.gbnf), marks: triggers(calls) };
}

/** A call without its mark is one only if it names a function. */
function triggers({ syntax, functions }: CallFormat): readonly string[] {
  const [mark = '', ...bare] = marksOf(syntax);
  const end = syntax.between.trim();
  return [mark, ...bare.flatMap((open) => functions.map((name) => `${open}${name}${end}`))];
}
