/** What a reply is held to, compiled to grammars: the calls of the tools, and the JSON that the caller wants. */
import { replyRules } from '../grammar/reply.js';
import { unlessUnservable, WorkBudget, type NoGrammar } from '../grammar/work.js';
import type { CallFormat, CallSyntax, ReplyGrammar } from '../protocol/reply-format.js';
import { callsFormat, type CallChoice } from './call-format.js';

export interface HeldOrder {
  /** Absent: the reply calls nothing. `tools` has at least one. */
  readonly calls?: { readonly syntax: CallSyntax; readonly choice: CallChoice; readonly tools: readonly object[] };
  /** The content is JSON: an object, or what is valid against `schema`. */
  readonly json?: { readonly schema?: object };
}

export type HeldReply =
  | {
      readonly kind: 'ok';
      readonly calls?: CallFormat;
      /** Holds all of the reply. */
      readonly grammar?: Omit<ReplyGrammar, 'after'>;
    }
  /**
   * No reply can be held to what the tools take, or to its own schema. `why`: what is wrong with that, to follow its name. `at`:
   * the index of the tool that is to blame; absent: all together are.
   */
  | (NoGrammar & { readonly of: 'tools' | 'reply'; readonly at?: number });

/** Compiles within the bound of `work`, which has weighed the tools. */
export function holdReply({ calls: offer, json }: HeldOrder, work: WorkBudget): HeldReply {
  const reply = json && replyRules(json.schema, work);
  if (reply?.kind === 'unservable') return cannotHold('reply', reply);
  if (!offer) {
    if (!reply) return { kind: 'ok' };
    const { gbnf, stacks } = reply;
    return { kind: 'ok', grammar: { gbnf, ...(stacks !== undefined && { stacks }) } };
  }
  const made = callsFormat(offer.syntax, offer.tools, offer.choice, reply, work);
  return made.kind === 'unservable' ? cannotHold('tools', made) : made;
}

/** The same, whatever work it takes within MAX_WORK. */
export function holdReplyInFull(order: HeldOrder): HeldReply {
  const work = new WorkBudget();
  return weighed(order.calls?.tools ?? [], work) ?? holdReply(order, work);
}

/** Counts the values of the tools. Returns a refusal if there are too many. */
export function weighed(tools: readonly object[], work: WorkBudget): (HeldReply & { kind: 'unservable' }) | undefined {
  const excess = unlessUnservable(() => work.weigh(tools));
  return excess ? cannotHold('tools', excess) : undefined;
}

function cannotHold(
  of: 'tools' | 'reply',
  why: NoGrammar & { readonly at?: number },
): HeldReply & { kind: 'unservable' } {
  return { ...why, of };
}
