import type { PromptConversation } from '../../engine/prompt/conversation.js';

/** What a conversation shows of a template. */
export type GoldenClass = 'plain' | 'tools' | 'loop' | 'thought';

/** One request as both renderers are given it: ours directly, llama-server as the body of POST /apply-template. */
export interface GoldenConversation extends PromptConversation {
  readonly class: GoldenClass;
  readonly reasoningEffort?: string;
}

function tool(name: string, description: string, parameters: object): object {
  return { type: 'function', function: { name, description, parameters } };
}

// Every tool is described: llama.cpp gives one that is not an empty description.
const TOOLS = [
  tool('get_weather', 'Tells the weather', {
    type: 'object',
    properties: {
      city: { type: 'string', description: 'A city' },
      unit: { type: 'string', enum: ['celsius', 'fahrenheit'] },
      days: { type: 'integer' },
    },
    required: ['city'],
  }),
  tool('send_note', 'Sends a note to people', {
    type: 'object',
    properties: { to: { type: 'array', items: { type: 'string' } }, text: { type: 'string' } },
    required: ['to', 'text'],
  }),
];

const SYSTEM = { role: 'system', content: 'Be brief. "Never" say <b>no</b>.' };
const USER = { role: 'user', content: 'Is it raining in Zürich?' };
const CALL = {
  // Nine letters and digits, as Mistral's templates want it.
  id: 'call00001',
  type: 'function',
  function: { name: 'get_weather', arguments: '{"city":"Zürich","days":2,"unit":"celsius"}' },
};
const NOTE = {
  id: 'call00002',
  type: 'function',
  function: { name: 'send_note', arguments: '{"to":["Ann","Bob"],"text":"Rain & \\"wind\\"\\nsoon"}' },
};
const RESULT = { role: 'tool', tool_call_id: CALL.id, name: 'get_weather', content: '{"rain": true, "wind": 3.5}' };
const SENT = { role: 'tool', tool_call_id: NOTE.id, name: 'send_note', content: 'sent' };

export const CONVERSATIONS: Readonly<Record<string, GoldenConversation>> = {
  turn: { class: 'plain', messages: [USER] },
  turns: {
    class: 'plain',
    messages: [SYSTEM, USER, { role: 'assistant', content: 'Yes.' }, { role: 'user', content: 'And tomorrow?\n' }],
  },
  offer: { class: 'tools', messages: [USER], tools: TOOLS },
  'offer-system': { class: 'tools', messages: [SYSTEM, USER], tools: TOOLS },
  call: {
    class: 'loop',
    messages: [USER, { role: 'assistant', content: null, tool_calls: [CALL] }, RESULT],
    tools: TOOLS,
  },
  calls: {
    class: 'loop',
    messages: [
      SYSTEM,
      USER,
      { role: 'assistant', content: 'I will look.', tool_calls: [CALL, NOTE] },
      RESULT,
      SENT,
      { role: 'assistant', content: 'It is.' },
      { role: 'user', content: 'Thanks' },
    ],
    tools: TOOLS,
  },
  'thought-turns': {
    class: 'thought',
    messages: [
      USER,
      { role: 'assistant', content: 'Yes.', reasoning_content: 'Clouds.' },
      { role: 'user', content: 'So?' },
    ],
  },
  'thought-call': {
    class: 'thought',
    messages: [
      USER,
      { role: 'assistant', content: null, reasoning_content: 'I must look.', tool_calls: [CALL] },
      RESULT,
    ],
    tools: TOOLS,
  },
  'effort-low': { class: 'thought', messages: [USER], reasoningEffort: 'low' },
  'effort-none': { class: 'thought', messages: [USER], reasoningEffort: 'none' },
};

/** The same as llama-server reads it. */
export function requestBody({ messages, tools, reasoningEffort }: GoldenConversation): string {
  return JSON.stringify({ messages, tools, reasoning_effort: reasoningEffort });
}
