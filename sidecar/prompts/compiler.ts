/**
 * The prompt host's compiler thread: the tools of one request as a grammar, when that takes more work than a thread does that
 * others wait for. Loads no model.
 */
import { setPriority } from 'node:os';
import { compileCalls } from '../../engine/prompt/chat-prompt.js';
import type { Answer, CompilerTask } from './messages.js';
import { unservable } from './refusals.js';

/**
 * Of this thread, on Linux, where a priority is a thread's and not its process'. On cores that are all in use it gets a third
 * of what another thread gets, so that such tools do not slow down what callers without them wait for.
 */
const NICE = 5;

setPriority(NICE);
warmUp();

export default function compile({ bytes, compile }: CompilerTask): Answer {
  const { tools } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly tools: readonly object[] };
  const calls = compileCalls(tools, compile);
  return calls.kind === 'unservable' ? unservable(calls) : { kind: 'compiled', calls };
}

/** Code that has not run yet takes several times as long, and the first request here is to wait no longer than the next. */
function warmUp(): void {
  const many = Array.from({ length: 100 }, (_, i) => ({ properties: { [`p${i}`]: { type: 'string' } } }));
  const parameters = { type: 'object', properties: { a: { allOf: [{ anyOf: many }, ...many] } }, required: ['a'] };
  const syntax = { mark: '<', open: '<', between: ',', close: '>' };
  const choice = { required: true, parallel: false };
  compileCalls([{ type: 'function', function: { name: 'f', parameters } }], { syntax, choice, json: false });
}
