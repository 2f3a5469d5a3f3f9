/** Constraints of a reply, compiled to grammars: the calls of the tools, and the JSON that the caller wants. */
import { replyRules } from '../grammar/schema.js';
import { unlessUnservable, WorkBudget, type NoGrammar } from '../grammar/work.js';
import type { CallFormat, CallSyntax, ReplyGrammar } from '../protocol/reply-format.js';
import { compileCalls, type CallChoice } from './call-format.js';

export interface ReplyConstraint {
  /** Absent: the reply calls nothing. `tools` has at least one. */
  readonly calls?: { readonly syntax: CallSyntax; readonly choice: CallChoice; readonly tools: readonly object[] };
  /** The content is JSON: an object, or what is valid against `schema`. */
  readonly json?: { readonly schema?: object };
}

export type CompiledConstraint =
  | {
      readonly kind: 'ok';
      readonly calls?: CallFormat;
      /** Constrains the whole reply. */
      readonly grammar?: Omit<ReplyGrammar, 'after'>;
    }
  /**
   * The parameters of the tools, or the reply's own schema, cannot be enforced. `why`: the reason, to follow its name. `at`: the index of
   * the tool that causes it; absent: all together do.
   */
  | (NoGrammar & { readonly of: 'tools' | 'reply'; readonly at?: number });

/** Compiles within the bound of `work`, which has weighed the tools. */
export function compileConstraint({ calls: offer, json }: ReplyConstraint, work: WorkBudget): CompiledConstraint {
  const reply = json && replyRules(json.schema, work);
  if (reply?.kind === 'unservable') return unservableFor('reply', reply);
  if (!offer) {
    if (!reply) return { kind: 'ok' };
    const { gbnf, stacks } = reply;
    return { kind: 'ok', grammar: { gbnf, ...(stacks !== undefined && { stacks }) } };
  }
  const made = compileCalls(offer.syntax, offer.tools, offer.choice, reply, work);
  return made.kind === 'unservable' ? unservableFor('tools', made) : made;
}

/** The same, whatever work it takes within MAX_WORK. */
export function compileConstraintInFull(constraint: ReplyConstraint): CompiledConstraint {
  const work = new WorkBudget();
  return weighed(constraint.calls?.tools ?? [], work) ?? compileConstraint(constraint, work);
}

/** Counts the values of the tools. Returns a refusal if there are too many. */
export function weighed(
  tools: readonly object[],
  work: WorkBudget,
): (CompiledConstraint & { kind: 'unservable' }) | undefined {
  const excess = unlessUnservable(() => work.weigh(tools));
  return excess ? unservableFor('tools', excess) : undefined;
}

function unservableFor(
  of: 'tools' | 'reply',
  why: NoGrammar & { readonly at?: number },
): CompiledConstraint & { kind: 'unservable' } {
  return { ...why, of };
}
