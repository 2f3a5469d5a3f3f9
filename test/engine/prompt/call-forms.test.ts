/** Results of calls within the message that calls. */
import t from 'tap';
import type { PromptMessage } from '../../../engine/prompt/conversation.js';
import { withEmbeddedResults } from '../../../engine/prompt/call-forms.js';
import { MAX_ARGUMENT_NESTING } from '../../../engine/prompt/call-arguments.js';

const USER = { role: 'user', content: 'Go.' };
const CALLER = {
  role: 'assistant',
  content: 'I look.',
  tool_calls: ['look', 'go'].map((name) => ({
    id: `${name}-1`,
    type: 'function',
    function: { name, arguments: '{}' },
  })),
};
const result = (id: string, content: string): PromptMessage => ({ role: 'tool', tool_call_id: id, content });

function embedded(...messages: readonly PromptMessage[]): readonly PromptMessage[] {
  return withEmbeddedResults({ messages, tools: [] }).messages;
}

t.test('results are named by the calls of their ids, and are JSON where they are that', (t) => {
  const [, call, ...more] = embedded(USER, CALLER, result('go-1', 'done {'), result('look-1', '{"a": [1]}'));
  t.same(more, []);
  t.same(call, {
    ...CALLER,
    content: null,
    tool_responses: [
      { name: 'go', response: 'done {' },
      { name: 'look', response: { a: [1] } },
    ],
  });
  t.match(embedded(CALLER, result('unknown', ' '), result('', '1')), [
    {
      tool_responses: [
        { name: 'look', response: ' ' },
        { name: 'go', response: 1 },
      ],
    },
  ]);
  const deep = '['.repeat(MAX_ARGUMENT_NESTING + 1) + ']'.repeat(MAX_ARGUMENT_NESTING + 1);
  t.match(embedded(CALLER, result('look-1', deep)), [{ tool_responses: [{ name: 'look', response: deep }] }]);
  t.end();
});

t.test('a reply behind results is part of the message, and nothing else is changed', (t) => {
  const said = { role: 'assistant', content: 'So.' };
  t.match(embedded(CALLER, result('look-1', '1'), said, USER), [{ ...CALLER, content: 'So.' }, USER]);
  t.match(embedded(CALLER, result('look-1', '1'), CALLER), [{ content: null }, CALLER]);
  for (const messages of [[USER, said, USER], [CALLER, USER], [CALLER, said], [result('look-1', '1')]]) {
    t.same(embedded(...messages), messages);
  }
  t.end();
});
