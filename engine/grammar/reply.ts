/** The grammar of a reply that is JSON. */
import { grammarText, type GrammarPart } from './gbnf.js';
import { anyObject, dataGrammar } from './json.js';
import { schemaGrammar } from './schema.js';
import type { NoGrammar, WorkBudget } from './work.js';

export type ReplyRules =
  | {
      readonly kind: 'ok';
      /** To be put beside the rules of calls. */
      readonly part: GrammarPart<string>;
      /** All of the reply. */
      readonly gbnf: string;
      /** The most places that a text of it can be at, all at once; absent: few. */
      readonly stacks?: number;
    }
  | NoGrammar;

/** A reply that is valid against `schema`, or without one is any JSON object. `work`: counts what it costs. */
export function replyRules(schema: object | undefined, work: WorkBudget): ReplyRules {
  if (schema === undefined) return { kind: 'ok', part: anyObject, gbnf: dataGrammar };
  const part = schemaGrammar(schema, 'reply', work);
  if (part.kind === 'unservable') return part;
  const text = grammarText(part.rule, [part]);
  if (text.kind === 'unservable') return text;
  const { gbnf } = text;
  const [, ...rules] = gbnf.split('\n');
  return { kind: 'ok', part: { rule: part.rule, rules }, gbnf, stacks: part.stacks };
}
