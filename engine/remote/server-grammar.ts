/** The grammar of a reply, in the form that a server is sent. */
import { callGrammar } from '../grammar/calls.js';
import { grammarAfter } from '../grammar/gbnf.js';
import { marksOf } from '../output/calls/call-text.js';
import type { GenerateJob } from '../protocol/jobs.js';
import type { CallFormat } from '../protocol/reply-format.js';

export type ServerGrammar =
  /** The whole reply is constrained. */
  | { readonly kind: 'whole'; readonly gbnf: string }
  /** From one of these texts on, once it occurs. */
  | { readonly kind: 'lazy'; readonly gbnf: string; readonly marks: readonly string[] };

/** Undefined: the reply is unconstrained. */
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
