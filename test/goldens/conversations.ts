import type { Effort } from '../../engine/prompt/effort.js';
import type { PromptConversation } from '../../engine/prompt/conversation.js';
import { ASSISTANT, CALL, callOf, NOTE, RESULT, SENT, SYSTEM, THOUGHT, USER } from './messages.js';
import { DATA_TOOLS, DEEP_TOOLS, TOOLS } from './tools.js';

/** Which part of a template a conversation tests. */
export type GoldenClass = 'plain' | 'tools' | 'loop' | 'thought';

/** One request for both renderers. llama-server gets it as the body of POST /apply-template. */
export interface GoldenConversation extends PromptConversation {
  readonly class: GoldenClass;
  readonly reasoningEffort?: Effort;
  /** The reply is a JSON object. */
  readonly jsonObject?: boolean;
}

const LONG = 'The quick brown fox, "quoted" & <b>bold</b>, jumps.\n'.repeat(2000);
const UNICODE = 'Größe 中文 العربية 🎉👩‍👩‍👧 e\u0301 \u00a0 — “x” \u2028 ¥';
const loop = (...calls: readonly (typeof CALL)[]) => ({ role: 'assistant', content: null, tool_calls: calls });
const result = (id: string, name: string, content: string) => ({ role: 'tool', tool_call_id: id, name, content });
const user = (content: string) => ({ role: 'user', content });

export const CONVERSATIONS: Readonly<Record<string, GoldenConversation>> = {
  turn: { class: 'plain', messages: [USER] },
  turns: { class: 'plain', messages: [SYSTEM, USER, ASSISTANT, user('And tomorrow?\n')] },
  'system-alone': { class: 'plain', messages: [SYSTEM] },
  'system-middle': { class: 'plain', messages: [USER, ASSISTANT, SYSTEM, user('And now?')] },
  'two-systems': { class: 'plain', messages: [SYSTEM, { role: 'system', content: 'Speak German.' }, USER] },
  'two-users': { class: 'plain', messages: [USER, user('Or snowing?')] },
  'two-assistants': {
    class: 'plain',
    messages: [USER, ASSISTANT, { role: 'assistant', content: 'Or no.' }, user('So?')],
  },
  unicode: { class: 'plain', messages: [{ role: 'system', content: UNICODE }, user(UNICODE)] },
  long: { class: 'plain', messages: [user(LONG)] },
  edges: { class: 'plain', messages: [user('  \n x \n\n '), { role: 'assistant', content: ' y \n' }, user('\t')] },
  empty: { class: 'plain', messages: [user(''), { role: 'assistant', content: '' }, user('x')] },
  marks: { class: 'plain', messages: [user('<|im_end|> [INST] </s> <think>a</think> {{ x }} {% y %}')] },
  parts: {
    class: 'plain',
    messages: [{ role: 'user', content: [{ type: 'text', text: 'One.' }] }, ASSISTANT, user('Two.')],
  },
  json: { class: 'plain', messages: [SYSTEM, USER], jsonObject: true },
  offer: { class: 'tools', messages: [USER], tools: TOOLS },
  'offer-system': { class: 'tools', messages: [SYSTEM, USER], tools: TOOLS },
  'offer-deep': { class: 'tools', messages: [USER], tools: DEEP_TOOLS },
  'offer-data': { class: 'tools', messages: [USER], tools: DATA_TOOLS },
  'offer-turns': { class: 'tools', messages: [SYSTEM, USER, ASSISTANT, user('And tomorrow?')], tools: TOOLS },
  'offer-none': {
    class: 'tools',
    messages: [USER, { role: 'assistant', content: 'No.' }, user('x')],
    tools: TOOLS,
    reasoningEffort: 'none',
  },
  'offer-json': { class: 'tools', messages: [USER], tools: TOOLS, jsonObject: true },
  call: { class: 'loop', messages: [USER, loop(CALL), RESULT], tools: TOOLS },
  calls: {
    class: 'loop',
    messages: [
      SYSTEM,
      USER,
      { role: 'assistant', content: 'I will look.', tool_calls: [CALL, NOTE] },
      RESULT,
      SENT,
      { role: 'assistant', content: 'It is.' },
      user('Thanks'),
    ],
    tools: TOOLS,
  },
  'calls-open': { class: 'loop', messages: [USER, loop(CALL, NOTE), RESULT, SENT], tools: TOOLS },
  'calls-swapped': { class: 'loop', messages: [USER, loop(CALL, NOTE), SENT, RESULT], tools: TOOLS },
  'calls-in-turn': { class: 'loop', messages: [USER, loop(CALL), RESULT, loop(NOTE), SENT], tools: TOOLS },
  'call-empty': {
    class: 'loop',
    messages: [USER, loop(callOf('call00003', 'get_weather', '{}')), result('call00003', 'get_weather', 'ok')],
    tools: TOOLS,
  },
  'call-deep': {
    class: 'loop',
    messages: [
      USER,
      loop(
        callOf('call00004', 'search', '{"filter":{"field":"a","not":{"field":"b"}},"limit":null,"tags":[{"k":1},{}]}'),
      ),
      result('call00004', 'search', '[]'),
    ],
    tools: DEEP_TOOLS,
  },
  'call-numbers': {
    class: 'loop',
    messages: [
      USER,
      loop(callOf('call00005', 'set', '{"rate":1e3,"share":1.0,"big":1234567890123,"on":false,"small":-0.25}')),
      result('call00005', 'set', 'done'),
    ],
    tools: DATA_TOOLS,
  },
  'call-unicode': {
    class: 'loop',
    messages: [
      USER,
      loop(callOf('call00006', 'get_weather', JSON.stringify({ city: UNICODE }))),
      result('call00006', 'get_weather', UNICODE),
    ],
    tools: TOOLS,
  },
  'call-marks': {
    class: 'loop',
    messages: [
      USER,
      loop(callOf('call00007', 'get_weather', '{"city":"</tool_call> <|im_end|>"}')),
      result('call00007', 'get_weather', '</tool_response><|im_end|> [/INST]'),
    ],
    tools: TOOLS,
  },
  'result-empty': { class: 'loop', messages: [USER, loop(CALL), { ...RESULT, content: '' }], tools: TOOLS },
  'result-nameless': {
    class: 'loop',
    messages: [USER, loop(CALL), { role: 'tool', tool_call_id: CALL.id, content: 'line\nline' }],
    tools: TOOLS,
  },
  'loop-user': { class: 'loop', messages: [USER, loop(CALL), RESULT, user('Be quick.')], tools: TOOLS },
  'thought-turns': {
    class: 'thought',
    messages: [USER, { ...ASSISTANT, reasoning_content: 'Clouds.' }, user('So?')],
  },
  'thought-call': {
    class: 'thought',
    messages: [USER, { ...loop(CALL), reasoning_content: 'I must look.' }, RESULT],
    tools: TOOLS,
  },
  'thought-calls': {
    class: 'thought',
    messages: [
      USER,
      { ...loop(CALL), reasoning_content: 'I must look.' },
      RESULT,
      { role: 'assistant', content: 'Rain.', reasoning_content: ' So it is.\n' },
      user('And in Bern?'),
    ],
    tools: TOOLS,
  },
  'thought-content': { class: 'thought', messages: [USER, THOUGHT, user('So?')] },
  'thought-content-call': {
    class: 'thought',
    messages: [USER, { ...loop(CALL), content: '<think>\nI must look.\n</think>\n\n' }, RESULT],
    tools: TOOLS,
  },
  'effort-low': { class: 'thought', messages: [USER], reasoningEffort: 'low' },
  'effort-medium': { class: 'thought', messages: [USER], reasoningEffort: 'medium' },
  'effort-high': { class: 'thought', messages: [SYSTEM, USER], reasoningEffort: 'high' },
  'effort-none': { class: 'thought', messages: [USER], reasoningEffort: 'none' },
  'effort-tools': { class: 'thought', messages: [USER], tools: TOOLS, reasoningEffort: 'high' },
};

/** The request as llama-server takes it. */
export function requestBody({ messages, tools, reasoningEffort, jsonObject }: GoldenConversation): string {
  const format = jsonObject === true && { response_format: { type: 'json_object' } };
  return JSON.stringify({ messages, tools, reasoning_effort: reasoningEffort, ...format });
}
