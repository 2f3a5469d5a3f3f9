import { CHAT } from './sidecar.js';

/** Together longer than 1,000 tokens; each as long as a grammar enforces. */
const ARGUMENTS = Array.from({ length: 24 }, (_, i) => `t${i}`);
const ARGUMENT_CHARACTERS = 256;

/**
 * As ENDLESS of open-stream.ts for the seedling, which samples an end token after some 25 tokens also with that reward: a call
 * whose arguments must be longer.
 */
export const ENDLESS_CALL = {
  model: CHAT,
  messages: [{ role: 'user', content: 'Hello' }],
  tools: [
    {
      type: 'function',
      function: {
        name: 'write',
        parameters: {
          type: 'object',
          properties: Object.fromEntries(
            ARGUMENTS.map((name) => [name, { type: 'string', minLength: ARGUMENT_CHARACTERS }]),
          ),
          required: ARGUMENTS,
          additionalProperties: false,
        },
      },
    },
  ],
  tool_choice: 'required',
} as const;
