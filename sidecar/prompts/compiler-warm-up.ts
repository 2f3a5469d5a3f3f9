/** A request for which no caller waits: it runs the compiler and what is around it before the first caller does. */
import type { CompilerTask } from './messages.js';

const names = Array.from({ length: 100 }, (_, i) => `p${i}`);
/** Constructs that become rules: required names, texts, numbers and alternatives. */
const written = {
  type: 'object',
  properties: {
    ...Object.fromEntries(names.map((name) => [name, { type: 'string', minLength: 1 }])),
    n: { minimum: 1 },
  },
  required: names,
};
/** Combinations of each property, which are expanded. All together are past the bound; none is that alone, or it would be refused at once. */
const either = (length: number): object => ({ anyOf: [{ minLength: 1 }, { minLength: length }] });
const multiplied = {
  type: 'object',
  properties: Object.fromEntries(
    names.slice(0, 10).map((name, i) => [name, { allOf: Array.from({ length: 8 }, () => either(2 + i)) }]),
  ),
};

/** A chat whose tools are past the bound of work, so that the compiler does all that it may. */
export function expensiveChat(model: string): Uint8Array {
  return Buffer.from(
    JSON.stringify({
      model,
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [written, multiplied].map((parameters, i) => ({
        type: 'function',
        function: { name: `f${i}`, parameters },
      })),
      tool_choice: 'required',
    }),
  );
}

/** The same as a task for the compiler thread. */
export const WARM_UP: CompilerTask = {
  form: 'chat',
  syntax: { mark: '<', open: '<', between: ',', close: '>' },
  bytes: expensiveChat('m'),
};
