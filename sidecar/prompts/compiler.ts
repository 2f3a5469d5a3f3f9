/** The prompt host's compiler thread: compiles a request's grammars, if they take more work than other threads do. Loads no model. */
import { setPriority } from 'node:os';
import { constraintOf } from '../../engine/prompt/chat-prompt.js';
import { compileConstraintInFull } from '../../engine/prompt/reply-constraint.js';
import { parseBody } from '../contracts/parse.js';
import type { Answer, CompilerTask } from './messages.js';
import { failed, refused, unservable } from './prompt-maker.js';

/** This thread's nice value, on Linux: on busy cores it gets a third of another's time, so as not to slow requests that need none. */
const NICE = 5;

setPriority(NICE);

export default function compile({ form, bytes, syntax }: CompilerTask): Answer {
  const parsed = parseBody(form, bytes);
  if (parsed.kind === 'invalid') return refused(parsed.error);
  if (!('conversation' in parsed.request)) return failed('not a chat');
  const { params, conversation, replySchema } = parsed.request;
  const { calls, jsonObject } = params;
  const constraint = constraintOf(syntax, conversation.tools ?? [], {
    jsonObject,
    ...(calls && { calls }),
    ...(replySchema && { replySchema }),
  });
  const compiled = compileConstraintInFull(constraint);
  return compiled.kind === 'unservable' ? unservable(compiled, form, parsed.request) : { kind: 'compiled', compiled };
}
