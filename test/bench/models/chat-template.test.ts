import { Template } from '@huggingface/jinja';
import t from 'tap';
import { CHAT_TEMPLATE } from '../../../bench/models/chat-template.js';

const template = new Template(CHAT_TEMPLATE);

function render(messages: object[], more: object = {}): string {
  return template.render({ messages, ...more });
}

const SYSTEM = { role: 'system', content: 'Be kind.' };
const USER = { role: 'user', content: 'Hi' };
const TOOLS = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }];
const CALL = { id: '1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } };

t.test('messages, and the beginning of the reply', (t) => {
  t.equal(render([USER]), '<|im_start|>user\nHi<|im_end|>\n');
  t.equal(
    render([SYSTEM, USER, { role: 'assistant', content: 'Yes?' }, { role: 'user', content: 'Go' }], {
      add_generation_prompt: true,
    }),
    '<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n' +
      '<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n',
  );
  t.equal(render([USER, SYSTEM]), '<|im_start|>user\nHi<|im_end|>\n<|im_start|>system\nBe kind.<|im_end|>\n');
  t.end();
});

t.test(
  'enable_thinking: false closes the thought, a reasoning effort opens it; without both the model decides',
  (t) => {
    const end = (more: object): string => render([USER], { add_generation_prompt: true, ...more }).slice(-41);
    t.match(end({ enable_thinking: false }), /assistant\n<think>\n\n<\/think>\n\n$/);
    t.match(end({ enable_thinking: true }), /<\|im_start\|>assistant\n$/);
    t.match(end({ enable_thinking: true, reasoning_effort: 'low' }), /assistant\n<think>\n$/);
    t.match(end({ enable_thinking: false, reasoning_effort: 'none' }), /assistant\n<think>\n\n<\/think>\n\n$/);
    t.match(end({}), /<\|im_start\|>assistant\n$/);
    t.end();
  },
);

t.test('tools are listed in the system message, with and without a system message of the caller', (t) => {
  const offer =
    'You may call these tools:\n<tools>\n' +
    '{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}' +
    '\n</tools>\nTo call a tool, reply with\n<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call><|im_end|>\n';
  t.equal(render([USER], { tools: TOOLS }), `<|im_start|>system\n${offer}<|im_start|>user\nHi<|im_end|>\n`);
  t.equal(
    render([SYSTEM, USER], { tools: TOOLS }),
    `<|im_start|>system\nBe kind.\n\n${offer}<|im_start|>user\nHi<|im_end|>\n`,
  );
  t.equal(render([USER], { tools: [] }), render([USER]));
  t.equal(render([USER], { tools: null }), render([USER]));
  t.end();
});

t.test(
  'calls and results: content null or text, arguments as text or object, consecutive results share a turn',
  (t) => {
    const called = '<tool_call>\n{"name": "f", "arguments": {"a":1}}\n</tool_call>';
    const answers = [
      { role: 'tool', content: 'one', tool_call_id: '1' },
      { role: 'tool', content: 'two', tool_call_id: '2' },
    ];
    t.equal(
      render([USER, { role: 'assistant', content: null, tool_calls: [CALL, CALL] }, ...answers]),
      `<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n${called}\n${called}<|im_end|>\n` +
        '<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response><|im_end|>\n',
    );
    t.match(render([{ role: 'assistant', content: 'So:', tool_calls: [CALL] }]), `So:\n${called}<|im_end|>`);
    const object = { ...CALL, function: { name: 'f', arguments: { a: 1 } } };
    t.match(render([{ role: 'assistant', tool_calls: [object] }]), '{"name": "f", "arguments": {"a": 1}}');
    t.end();
  },
);

t.test('thoughts after the last question are kept, earlier ones are omitted', (t) => {
  const thinker = { role: 'assistant', content: 'Yes', reasoning_content: 'Hm.' };
  t.equal(
    render([USER, thinker]),
    '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nHm.\n</think>\n\nYes<|im_end|>\n',
  );
  t.notMatch(render([USER, thinker, USER]), 'Hm.');
  t.end();
});
