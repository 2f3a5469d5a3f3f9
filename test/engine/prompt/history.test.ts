import t from 'tap';
import { inWords, NO_RESULT, regularHistory } from '../../../engine/prompt/history.js';
import type { PromptMessage } from '../../../engine/prompt/conversation.js';

const user = { role: 'user', content: 'u' };
const calls = (...ids: readonly string[]): PromptMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } })),
});
const result = (id: string, content = `of ${id}`): PromptMessage => ({ role: 'tool', tool_call_id: id, content });
const said = (content: string): PromptMessage => ({ role: 'assistant', content });

function regular(messages: readonly PromptMessage[]): readonly PromptMessage[] {
  const made = regularHistory({ messages });
  return made.kind === 'ok' ? made.conversation.messages : [];
}

/** Messages in short: a call's ids, a result's id and content. */
function paired(...messages: readonly PromptMessage[]): readonly string[] {
  return regular(messages).map(({ role, content, tool_calls: made = [], tool_call_id: id }) => {
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
  t.same(paired(calls('a', 'b'), said('x'), result('b')), ['x(a,b)', `a=${NO_RESULT}`, 'b=of b']);
  t.same(paired(calls('a'), said('x'), user), ['(a)', `a=${NO_RESULT}`, 'x', 'u'], 'not without a result behind them');
  t.end();
});

t.test('a call without a result gets one that says so', (t) => {
  t.same(paired(calls('a', 'b'), result('b'), user), ['(a,b)', `a=${NO_RESULT}`, 'b=of b', 'u']);
  t.same(paired(user, calls('a')), ['u', '(a)', `a=${NO_RESULT}`]);
  t.end();
});

t.test('a result of no call becomes text of the user, at its place', (t) => {
  const stray = (content: string): string => inWords('tool result without a call', content);
  t.same(paired(user, calls('a'), result('b')), ['u', '(a)', `a=${NO_RESULT}`, stray('of b')]);
  t.same(paired(user, result('a'), said('x')), ['u', stray('of a'), 'x'], 'no call before it');
  t.same(paired(calls('a', 'b'), result('c'), result('b'), result('a')), ['(a,b)', 'a=of a', 'b=of b', stray('of c')]);
  t.same(paired(calls('a'), result('a'), result('a', '')), ['(a)', 'a=of a', stray('')], 'a second one');
  t.same(paired(calls('a'), user, said('x'), result('a')).at(-1), stray('of a'), 'the turn is over');
  t.end();
});

t.test('arguments that are not one JSON object become the member of one', (t) => {
  const given = (text: string, name = 'f'): readonly string[] => {
    const call = { id: 'a', type: 'function', function: { name, arguments: text } };
    const [message] = regular([{ role: 'assistant', tool_calls: [call] }]);
    const made = message?.tool_calls?.[0]?.function;
    return made === undefined ? [] : name === 'f' ? [made.arguments] : [made.name];
  };
  for (const text of ['{}', '{"a": [1e3, null]}', '', ' ', '{"invalid_arguments":"x","b":1}'])
    t.same(given(text), [text]);
  t.same(given(' null'), ['{}']);
  const others = [
    '{"path": "} What is',
    '[]',
    '"x"',
    '7',
    'NaN',
    '{}{}',
    "{'a':1}",
    '['.repeat(100_000),
    '{"invalid_arguments":"x"}',
  ];
  for (const text of others) t.same(given(text), [JSON.stringify({ invalid_arguments: text })]);
  t.same(given(`[${'0,'.repeat(200_000)}0]`)[0]?.slice(0, 30), '{"invalid_arguments":"[0,0,0,0');
  t.same(given('{}', 'mcp__a.look-up/b:c'), ['mcp__a.look-up/b:c']);
  t.same(given('{}', 'look", "x'), ['look%22;%2c;%20;%22;x'], 'a name ends no string and no tag');
  t.end();
});

t.test('the strict contract refuses what would have to become text, by its place', (t) => {
  const strict = (...messages: readonly PromptMessage[]) => regularHistory({ messages }, true);
  const broken = { id: 'b', type: 'function', function: { name: 'f', arguments: '{"at' } };
  const calling = { role: 'assistant', tool_calls: [...(calls('a').tool_calls ?? []), broken] };
  t.same(strict(user, calling), { kind: 'arguments', message: 1, call: 1 });
  t.same(strict(user, calls('a'), result('b')), { kind: 'unpaired-result', message: 2 });
  t.match(strict(user, calls('a'), result('a')), { kind: 'ok' });
  t.end();
});

t.test('what the caller writes does not read as our own words', (t) => {
  const own = inWords('system message', 'x');
  const [once = '', twice = ''] = paired(user, { ...user, content: own })
    .slice(1)
    .flatMap((text) => [text, ...paired({ ...user, content: text })]);
  t.equal(once, own.replaceAll('system message', 'quoted system message'));
  t.equal(twice, own.replaceAll('system message', 'quoted quoted system message'), 'nor as each other');
  t.match(
    paired(result('a', own))[0],
    /^The following is a tool result without a call:\n\nThe following is a quoted system message:/,
  );
  t.end();
});

t.test('images stay parts of their messages, whatever is written around them', (t) => {
  const image = { type: 'image_url' };
  const own = inWords('system message', 'x');
  const [said, text] = [
    { type: 'text', text: 'here' },
    { type: 'text', text: own },
  ];
  const [asked, result] = regular([
    { role: 'user', content: [text, image] },
    { role: 'tool', tool_call_id: 'a', content: [said, image] },
  ]);
  t.strictSame(asked?.content, [{ ...text, text: own.replaceAll('system message', 'quoted system message') }, image]);
  const [begin, end] = inWords('tool result without a call', '|').split('|');
  t.strictSame(result, {
    role: 'user',
    content: [{ type: 'text', text: begin }, said, image, { type: 'text', text: end }],
  });
  t.equal((result?.content as readonly unknown[])[2], image, 'the same object');
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
  t.ok(regular(messages).every((message, at) => message === messages[at]));
  t.end();
});
