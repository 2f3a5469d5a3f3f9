/**
 * The prompt host's compiler thread: compiles what holds the reply of one request, when that takes more work than a thread does
 * that others wait for. Loads no model.
 */
import { setPriority } from 'node:os';
import { orderOf } from '../../engine/prompt/chat-prompt.js';
import { holdReplyInFull } from '../../engine/prompt/held-reply.js';
import type { Answer, CompilerTask } from './messages.js';
import { unservable } from './refusals.js';

/**
 * Of this thread, on Linux, where a priority is a thread's and not its process'. On cores that are all in use it gets a third
 * of what another thread gets, so that such tools do not slow down what callers without them wait for.
 */
const NICE = 5;

setPriority(NICE);
warmUp();

/** Loaded beside the models, since its schemas take longer to compile than most requests. */
const contracts = import('../contracts/parse.js');

export default async function compile({ route, bytes, syntax }: CompilerTask): Promise<Answer> {
  const { parseBody } = await contracts;
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
  return held.kind === 'unservable' ? unservable(held) : { kind: 'compiled', held };
}

/** Code that has not run yet takes several times as long, and the first request here is to wait no longer than the next. */
function warmUp(): void {
  const many = Array.from({ length: 100 }, (_, i) => ({ properties: { [`p${i}`]: { type: 'string' } } }));
  const parameters = { type: 'object', properties: { a: { allOf: [{ anyOf: many }, ...many] } }, required: ['a'] };
  const syntax = { mark: '<', open: '<', between: ',', close: '>' };
  const choice = { required: true, parallel: false };
  const tools = [{ type: 'function', function: { name: 'f', parameters } }];
  holdReplyInFull({ calls: { syntax, choice, tools } });
}
