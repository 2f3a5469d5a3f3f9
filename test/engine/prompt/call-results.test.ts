import t from 'tap';
import { NO_RESULT, withPairedResults } from '../../../engine/prompt/call-results.js';
import type { PromptMessage } from '../../../engine/prompt/conversation.js';

const user = { role: 'user', content: 'u' };
const calls = (...ids: readonly string[]): PromptMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } })),
});
const result = (id: string, content = `of ${id}`): PromptMessage => ({ role: 'tool', tool_call_id: id, content });
const said = (content: string): PromptMessage => ({ role: 'assistant', content });

/** Messages in short: a call's ids, a result's id and content. */
function paired(...messages: readonly PromptMessage[]): readonly string[] | number {
  const made = withPairedResults({ messages });
  if (made.kind === 'unpaired') return made.message;
  return made.conversation.messages.map(({ role, content, tool_calls: made = [], tool_call_id: id }) => {
    const text = typeof content === 'string' ? content : '';
    if (role === 'tool') return `${id ?? ''}=${text}`;
    return made.length > 0 ? `${text}(${made.map((call) => call.id).join(',')})` : text;
  });
}

t.test('results come in the order of their calls, directly behind them', (t) => {
  t.same(paired(user, calls('a', 'b'), result('b'), result('a'), user), ['u', '(a,b)', 'a=of a', 'b=of b', 'u']);
  t.same(paired(calls('a'), calls('b'), result('a'), result('b')), ['(a)', 'a=of a', '(b)', 'b=of b']);
  t.same(paired(calls('a'), user, result('a'), user), ['(a)', 'a=of a', 'u', 'u']);
  t.end();
});

t.test('words between calls and their results stand beside the calls', (t) => {
  t.same(paired(calls('a'), said('x'), said('y'), result('a'), said('z')), ['x\n\ny(a)', 'a=of a', 'z']);
  t.same(paired(calls('a'), said('x'), user), ['(a)', `a=${NO_RESULT}`, 'x', 'u'], 'not without a result behind them');
  t.end();
});

t.test('a call without a result gets one that says so', (t) => {
  t.same(paired(calls('a', 'b'), result('b'), user), ['(a,b)', `a=${NO_RESULT}`, 'b=of b', 'u']);
  t.same(paired(user, calls('a')), ['u', '(a)', `a=${NO_RESULT}`]);
  t.end();
});

t.test('a result of no call is named by its place', (t) => {
  t.equal(paired(user, calls('a'), result('b')), 2);
  t.equal(paired(user, result('a')), 1, 'no call before it');
  t.equal(paired(calls('a'), result('a'), result('a')), 2, 'a second one');
  t.equal(paired(calls('a'), user, said('x'), result('a')), 3, 'the turn is over');
  t.end();
});

t.test('ids that repeat are told apart', (t) => {
  t.same(paired(calls('a'), result('a', '1'), calls('a'), result('a', '2')), ['(a)', 'a=1', '(a-1)', 'a-1=2']);
  t.same(paired(calls('a', 'a'), result('a', '1'), result('a', '2')), ['(a,a-1)', 'a=1', 'a-1=2']);
  t.same(paired(calls('a', 'a-1', 'a')), ['(a,a-1,a-2)', ...['a', 'a-1', 'a-2'].map((id) => `${id}=${NO_RESULT}`)]);
  t.end();
});

t.test('other messages stay the same objects', (t) => {
  const messages = [user, calls('a'), result('a')];
  const made = withPairedResults({ messages });
  t.ok(made.kind === 'ok' && made.conversation.messages.every((message, at) => message === messages[at]));
  t.end();
});
