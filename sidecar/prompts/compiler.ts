/**
 * The prompt host's compiler thread: compiles what holds the reply of one request, when that takes more work than a thread does
 * that others wait for. Loads no model.
 */
import { setPriority } from 'node:os';
import { orderOf } from '../../engine/prompt/chat-prompt.js';
import { holdReplyInFull } from '../../engine/prompt/held-reply.js';
import { parseBody } from '../contracts/parse.js';
import type { Answer, CompilerTask } from './messages.js';
import { unservable } from './refusals.js';

/**
 * Of this thread, on Linux, where a priority is a thread's and not its process'. On cores that are all in use it gets a third
 * of what another thread gets, so that such tools do not slow down what callers without them wait for.
 */
const NICE = 5;

setPriority(NICE);

export default function compile({ route, bytes, syntax }: CompilerTask): Answer {
  const parsed = parseBody(route, bytes);
  if (parsed.kind === 'invalid') return parsed;
  if (!('conversation' in parsed.request)) return { kind: 'failed' };
  const { params, conversation, replySchema } = parsed.request;
  const { calls, jsonObject } = params;
  const order = orderOf(syntax, conversation.tools ?? [], {
    jsonObject,
    ...(calls && { calls }),
    ...(replySchema && { replySchema }),
  });
  const held = holdReplyInFull(order);
  return held.kind === 'unservable' ? unservable(held, route, parsed.request) : { kind: 'compiled', held };
}
