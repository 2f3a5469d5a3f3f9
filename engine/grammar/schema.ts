import type { GrammarPart } from './gbnf.js';

export type SchemaGrammar =
  | ({ readonly kind: 'ok' } & GrammarPart)
  /** `why`: one sentence for the caller, without any of the caller's text. */
  | { readonly kind: 'unservable'; readonly why: string };

/**
 * The rules for a JSON text that is valid against a JSON schema. Their names begin with `prefix` (letters, digits, `-`),
 * but for those that all schemas share.
 */
export function schemaGrammar(schema: unknown, prefix = 'value'): SchemaGrammar {
  return { kind: 'unservable', why: `${prefix} ${typeof schema} is not built yet` };
}
