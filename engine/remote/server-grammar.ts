/** The grammar of a reply, in the form that a server is sent. */
import { callGrammar } from '../grammar/calls.js';
import { grammarAfter } from '../grammar/gbnf.js';
import type { GenerateJob } from '../protocol/jobs.js';

export type ServerGrammar =
  /** The whole reply is constrained. */
  | { readonly kind: 'whole'; readonly gbnf: string }
  /** From this text on, once it occurs. */
  | { readonly kind: 'lazy'; readonly gbnf: string; readonly mark: string };

/** Undefined: the reply is unconstrained. */
export function serverGrammar({ format }: GenerateJob): ServerGrammar | undefined {
  const grammar = format?.grammar;
  if (grammar) {
    const { gbnf, after } = grammar;
    return { kind: 'whole', gbnf: after === undefined ? gbnf : grammarAfter(after, gbnf) };
  }
  const calls = format?.calls;
  if (calls?.gbnf === undefined) return undefined;
  return { kind: 'lazy', gbnf: callGrammar(calls.gbnf), mark: calls.syntax.mark };
}
