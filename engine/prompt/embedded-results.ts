/**
 * For templates that read the results of calls from the message that calls, as Gemma 4's first ones do: results in their own
 * messages would not be in the model's format.
 */
import { CallArguments } from './call-arguments.js';
import { textOf, type PromptConversation, type PromptMessage } from './conversation.js';

/** One result as these templates have it. */
interface EmbeddedResult {
  readonly name: string;
  /** JSON where it is that, else text. */
  readonly response: unknown;
}

interface EmbeddingMessage extends PromptMessage {
  readonly tool_responses?: readonly EmbeddedResult[];
}

/**
 * The results that follow a message with calls become part of it, and so does the content of a reply without calls that follows
 * them, in place of the message's own: the template has no place for both.
 */
export function withEmbeddedResults({ messages, ...rest }: PromptConversation): PromptConversation {
  const given = new CallArguments();
  const embedded: EmbeddingMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at];
    if (message === undefined) continue;
    const results: EmbeddedResult[] = [];
    const calls = message.role === 'assistant' ? (message.tool_calls ?? []) : [];
    for (let next = messages[at + 1]; calls.length > 0 && next?.role === 'tool'; next = messages[at + 1]) {
      const { tool_call_id: id = '', content } = next;
      const called = calls.find((call) => call.id === id) ?? calls[results.length];
      results.push({ name: called?.function.name ?? id, response: valueOf(textOf(content) ?? '', given) });
      at += 1;
    }
    const after = messages[at + 1];
    const answers = results.length > 0 && after?.role === 'assistant' && (after.tool_calls ?? []).length === 0;
    const said = answers ? textOf(after.content) : undefined;
    if (said !== undefined) at += 1;
    embedded.push(results.length === 0 ? message : { ...message, content: said ?? null, tool_responses: results });
  }
  return { ...rest, messages: embedded };
}

/** Text that is no JSON, or too much of it, is a string. */
function valueOf(text: string, given: CallArguments): unknown {
  try {
    return text.trim() === '' ? text : given.parse(text);
  } catch {
    return text;
  }
}
