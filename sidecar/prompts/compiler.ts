/**
 * The prompt host's compiler thread: compiles the grammars of one request if that is more work than the threads that other requests wait
 * for may do. Loads no model.
 */
import { setPriority } from 'node:os';
import { constraintOf } from '../../engine/prompt/chat-prompt.js';
import { compileConstraintInFull } from '../../engine/prompt/reply-constraint.js';
import { parseBody } from '../contracts/parse.js';
import type { Answer, CompilerTask } from './messages.js';
import { failed, refused, unservable } from './prompt-maker.js';

/** This thread's nice value, on Linux: on busy cores it gets a third of another thread's time, so that other requests are not slowed. */
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
