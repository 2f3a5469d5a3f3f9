/**
 * A task for the compiler thread that no caller waits for. Code that has not run yet takes several times as long, and the first
 * request there is to wait no longer than the next.
 */
import type { CompilerTask } from './messages.js';

const many = Array.from({ length: 100 }, (_, i) => ({ properties: { [`p${i}`]: { type: 'string' } } }));
const parameters = { type: 'object', properties: { a: { allOf: [{ anyOf: many }, ...many] } }, required: ['a'] };

/** Tools past the bound of work, so that the compiler does all that it may. */
export const WARM_UP: CompilerTask = {
  route: 'chat',
  syntax: { mark: '<', open: '<', between: ',', close: '>' },
  bytes: Buffer.from(
    JSON.stringify({
      model: 'm',
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [{ type: 'function', function: { name: 'f', description: 'f', parameters } }],
      tool_choice: 'required',
    }),
  ),
};
