/** Messages of conversations with calls of two tools, for tests of prompts. */
import type { PromptMessage } from '../../engine/prompt/conversation.js';

const tool = (name: string) => ({
  type: 'function',
  function: {
    name,
    description: 'A tool',
    parameters: { type: 'object', properties: { key: { type: 'string', description: 'A text' } }, required: ['key'] },
  },
});
export const TOOLS = [tool('look'), tool('wander')];
export const OFFERED = { addGenerationPrompt: true, calls: { required: false, parallel: true } } as const;

export const system = (content: string): PromptMessage => ({ role: 'system', content });
export const user = (content: string): PromptMessage => ({ role: 'user', content });
export const said = (content: string): PromptMessage => ({ role: 'assistant', content });
/** Calls by their ids: `look` has ids that begin with l, `wander` with w. */
export const calls = (...ids: readonly string[]): PromptMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => ({
    id,
    type: 'function',
    function: {
      name: id.startsWith('l') ? 'look' : 'wander',
      arguments: JSON.stringify({ key: `${id[1] ?? ''}-text` }),
    },
  })),
});
export const result = (id: string, content: string): PromptMessage => ({ role: 'tool', tool_call_id: id, content });

export const LOOK = 'la_0123456789';
export const WANDER = 'wb_0123456789';
