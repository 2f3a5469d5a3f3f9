/**
 * A task for the compiler thread for which no caller waits. Code that has not run yet takes several times as long, and
 * the first request should wait no longer than the next.
 */
import type { CompilerTask } from './messages.js';

const names = Array.from({ length: 100 }, (_, i) => `p${i}`);
const many = names.map((name) => ({ properties: { [name]: { type: 'string' } } }));
/** Constructs that become rules: required names, texts, numbers and alternatives. */
const written = {
  type: 'object',
  properties: {
    ...Object.fromEntries(names.map((name) => [name, { type: 'string', minLength: 1 }])),
    n: { minimum: 1 },
  },
  required: names,
};
/** Constructs whose combinations are expanded. */
const multiplied = { type: 'object', properties: { a: { allOf: [{ anyOf: many }, ...many] } }, required: ['a'] };

/** Tools past the bound of work, so that the compiler does all that it may. */
export const WARM_UP: CompilerTask = {
  form: 'chat',
  syntax: { mark: '<', open: '<', between: ',', close: '>' },
  bytes: Buffer.from(
    JSON.stringify({
      model: 'm',
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [written, multiplied].map((parameters, i) => ({
        type: 'function',
        function: { name: `f${i}`, parameters },
      })),
      tool_choice: 'required',
    }),
  ),
};
