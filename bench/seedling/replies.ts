/** Whether a reply is the right one. */
import { isDeepStrictEqual } from 'node:util';
import type { ChatExample } from './corpus/example.js';
import { WORDINGS } from './corpus/wordings.js';

export interface Reply {
  readonly content: string;
  readonly thought: string;
  /** By itself, not by the token limit. */
  readonly ended: boolean;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
}

const CALL = /^<tool_call>\n([\s\S]*)\n<\/tool_call>$/;

export function repliedTo({ reply, jsonObject }: ChatExample, given: Reply): boolean {
  const called = CALL.exec(reply)?.[1];
  if (called !== undefined) {
    const wanted = JSON.parse(called) as { name: string; arguments: unknown };
    const [call, ...more] = given.calls;
    return (
      more.length === 0 && call?.name === wanted.name && isDeepStrictEqual(parsed(call.arguments), wanted.arguments)
    );
  }
  if (given.calls.length > 0) return false;
  const answer = reply.slice(reply.indexOf('</think>') < 0 ? 0 : reply.indexOf('</think>') + '</think>'.length).trim();
  const content = given.content.trim();
  if (jsonObject === true) return isDeepStrictEqual(parsed(content), parsed(answer));
  const same = WORDINGS.talks.find(({ answers }) => answers.includes(answer))?.answers ?? [answer];
  return same.includes(content);
}

/** undefined: no JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
