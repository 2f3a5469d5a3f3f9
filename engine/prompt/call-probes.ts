/** What a template is given to find how its model writes calls, and what it makes of that. */
import type { PromptConversation, PromptMessage } from './conversation.js';

/** Renders with a generation prompt; undefined if the template threw. */
export type Render = (conversation: PromptConversation) => string | undefined;

export interface Probe {
  readonly id: string;
  readonly name: string;
  readonly value: string;
}

export const PROBES: readonly [Probe, Probe] = [
  { id: 'probe0001', name: 'probe_tool', value: 'probe-value' },
  { id: 'probe0002', name: 'probe_other', value: 'probe-second' },
];
export const KEY = 'probe_key';

/** One argument of each type but null, which some templates cannot write, by its name. */
export const TYPED = {
  probe_number: 7041,
  probe_boolean: true,
  probe_array: [7042],
  probe_object: { probe_inner: 7043 },
} as const;

const ANSWER = 'probe-answer';
const RESULT = 'probe-result';

const USER: PromptMessage = { role: 'user', content: 'probe-user-text' };

/** A tool of this name with one argument, {@link KEY}. */
export function probeTool(name: string): object {
  const parameters = {
    type: 'object',
    properties: { [KEY]: { type: 'string', description: 'A text' } },
    required: [KEY],
  };
  return { type: 'function', function: { name, description: 'A tool', parameters } };
}

const TOOLS = PROBES.map(({ name }) => probeTool(name));

/**
 * What a model would have written to make these calls, and whatever the template puts after that, up to their results.
 * `typed`: with arguments of all types.
 */
export function callingTurn(render: Render, probes: readonly Probe[], typed = false): string | undefined {
  const prompt = render({ messages: [USER], tools: TOOLS });
  const whole = render({ messages: [USER, callTurn(probes, typed), ...probes.map(resultOf)], tools: TOOLS });
  if (prompt === undefined || whole === undefined) return undefined;
  let common = 0;
  while (common < prompt.length && prompt[common] === whole[common]) common += 1;
  // A tag that both begin alike belongs to the reply.
  const begin = whole.slice(0, common).replace(/<[^<>]*$/, '').length;
  const end = whole.indexOf(RESULT, begin);
  return whole.slice(begin, end < 0 ? undefined : end);
}

function callTurn(probes: readonly Probe[], typed: boolean): PromptMessage {
  return {
    role: 'assistant',
    content: null,
    tool_calls: probes.map(({ id, name, value }) => ({
      id,
      type: 'function',
      function: { name, arguments: JSON.stringify({ [KEY]: value, ...(typed && TYPED) }) },
    })),
  };
}

function resultOf({ id }: Probe): PromptMessage {
  return { role: 'tool', tool_call_id: id, content: RESULT };
}

/** The first mark after an assistant's words. */
export function turnEnd(render: Render): string | undefined {
  const text = render({ messages: [USER, { role: 'assistant', content: ANSWER }, USER], tools: TOOLS });
  const at = text?.lastIndexOf(ANSWER) ?? -1;
  return at < 0 ? undefined : /^\s*(<[^<>\s]+>|\[[^\][\s]+\])/.exec(text?.slice(at + ANSWER.length) ?? '')?.[1];
}
