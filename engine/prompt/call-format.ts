import { callGrammar, callRules, type Callable } from '../grammar/calls.js';
import type { ReplyRules } from '../grammar/schema.js';
import { WorkBudget, type NoGrammar } from '../grammar/work.js';
import type { CallFormat, CallSyntax, ReplyGrammar } from '../protocol/reply-format.js';

/** Which calls the caller wants. Structurally the sidecar's checked choice. */
export interface CallChoice {
  /** The reply must call. */
  readonly required: boolean;
  /** The one function that must be called. */
  readonly name?: string;
  /** More than one call may be made. */
  readonly parallel: boolean;
}

export type CompiledCalls =
  | {
      readonly kind: 'ok';
      readonly calls: CallFormat;
      /** Constrains the whole reply. Absent: the reply is free until a call begins. */
      readonly grammar?: Omit<ReplyGrammar, 'after'>;
    }
  /** `at`: the index of the tool that causes it; absent: all together do. */
  | (NoGrammar & { readonly at?: number });

/**
 * Compiles how the reply's calls are recognised and constrained. `tools`: the conversation's, at least one. `reply`: content is
 * JSON, by these rules. `work`: counts what it costs.
 */
export function compileCalls(
  syntax: CallSyntax,
  tools: readonly object[],
  choice: CallChoice,
  reply: Extract<ReplyRules, { kind: 'ok' }> | undefined,
  work = new WorkBudget(),
): CompiledCalls {
  const json = reply !== undefined;
  const all = (tools as readonly { readonly function: Callable }[]).map((tool) => tool.function);
  const callable = all.filter(({ name }) => choice.name === undefined || choice.name === name);
  const single = !choice.parallel || syntax.next === undefined;
  const or = choice.required ? undefined : reply;
  const answers = !choice.required && !json;
  const rules = callRules(syntax, callable, { single, answer: answers, ...(or && { beside: or.part.rules }) }, work);
  if (rules.kind === 'unservable') {
    const { at, ...why } = rules;
    const cause = at === undefined ? undefined : callable[at];
    return { ...why, ...(cause && { at: all.indexOf(cause) }) };
  }
  const { answer, ...bare } = syntax;
  // In JSON mode an answer is an object of the model's own, which may begin as the wrapping does; a required call is none.
  const calls = {
    syntax: answer === undefined || json || choice.required ? bare : syntax,
    functions: callable.map(({ name }) => name),
    single,
    ...(rules.values && { values: rules.values }),
  };
  const { userRecipient, answerLead } = syntax;
  const whole = choice.required || json || syntax.answer !== undefined || userRecipient !== undefined;
  const { gbnf, stacks } = rules;
  if (!whole) return { kind: 'ok', calls: { gbnf, stacks, ...calls } };
  const orLead = userRecipient === undefined ? answerLead : `${userRecipient}\n`;
  const places = Math.max(stacks, or?.stacks ?? 0);
  return {
    kind: 'ok',
    calls,
    grammar: {
      gbnf: callGrammar(gbnf, {
        lead: (syntax.lead ?? '').trimStart(),
        ...(or && { or: or.part }),
        ...(orLead !== undefined && { orLead }),
      }),
      stacks: places,
    },
  };
}
