/** Replies of models that write thought, content and calls as separate parts, as gpt-oss does. */
import t from 'tap';
import { ReplyText } from '../../../engine/output/reply-text.js';
import { familyOf } from '../../../engine/prompt/call-families.js';
import { thoughtsOf } from '../../../engine/prompt/thought-format.js';
import type { CallFormat } from '../../../engine/protocol/reply-format.js';

const HARMONY = '<|channel|>analysis functions.';
const SOLAR = '<|begin|>assistant<|think|> <|tool_call:begin|> <|tool_call:args|>';

interface Read {
  reasoning: string;
  content: string;
  calls: [string, string][];
}

function read(source: string, pieces: readonly string[]): Read {
  const syntax = familyOf(source);
  const thoughts = thoughtsOf(source, []);
  if (syntax === undefined || thoughts === undefined) throw new Error('no such family');
  const calls: CallFormat = { syntax, functions: ['look', 'go'], single: false, gbnf: '' };
  const text = new ReplyText([], { thought: thoughts.replyFormat('').thought, calls }, held);
  const all: Read = { reasoning: '', content: '', calls: [] };
  for (const part of [...pieces.map((piece) => text.push(Buffer.from(piece))), text.end()]) {
    all.reasoning += part.reasoning;
    all.content += part.content;
    for (const { index, name, arguments: json } of part.calls) {
      const call = (all.calls[index] ??= [name ?? '', '']);
      call[1] += json;
    }
  }
  return all;
}

const held = { begin: () => true, end: () => undefined };

const CALL = '{"at": "<|end|> and <|channel|>", "n": [1, 2]}';
const CASES: readonly [string, string, Read][] = [
  [
    HARMONY,
    '<|channel|>analysis<|message|>I must look.<|end|><|start|>assistant<|channel|>final<|message|>It is < 3.',
    { reasoning: 'I must look.', content: 'It is < 3.', calls: [] },
  ],
  [
    HARMONY,
    `<|channel|>analysis<|message|>I must look.<|end|><|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>${CALL}`,
    { reasoning: 'I must look.', content: '', calls: [['look', CALL]] },
  ],
  [
    HARMONY,
    `<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.look<|channel|>commentary json<|message|>${CALL}`,
    { reasoning: 'Hm.', content: '', calls: [['look', CALL]] },
  ],
  [
    HARMONY,
    ` to=functions.go<|channel|>commentary<|message|>{}`,
    { reasoning: '', content: '', calls: [['go', '{}']] },
  ],
  [
    HARMONY,
    `<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary to=functions.look json<|message|>${CALL}`,
    { reasoning: '', content: 'I will look.', calls: [['look', CALL]] },
  ],
  [
    HARMONY,
    '<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>So.',
    { reasoning: 'One.\nTwo.', content: 'So.', calls: [] },
  ],
  [
    HARMONY,
    '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>{"a": 1}',
    { reasoning: 'Hm.', content: '{"a": 1}', calls: [] },
  ],
  [
    HARMONY,
    '<|channel|>commentary<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes',
    { reasoning: 'Hm.', content: 'Yes', calls: [] },
  ],
  [
    HARMONY,
    '<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=assistant<|channel|>final<|message|>Yes',
    { reasoning: 'Hm.', content: 'Yes', calls: [] },
  ],
  [
    HARMONY,
    `<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>analysis to=functions.look <|constrain|>json<|message|>${CALL}`,
    { reasoning: 'Hm.', content: '', calls: [['look', CALL]] },
  ],
  [
    HARMONY,
    `<|channel|>analysis to=functions.go <|constrain|>json<|message|>{}`,
    { reasoning: '', content: '', calls: [['go', '{}']] },
  ],
  [
    SOLAR,
    `<|think|>Hm.<|end|><|begin|>assistant<|tool_call:begin|>a1<|tool_call:name|>look<|tool_call:args|>${CALL}<|tool_call:end|><|tool_call:begin|>b2<|tool_call:name|>go<|tool_call:args|>{}<|tool_call:end|>`,
    {
      reasoning: 'Hm.',
      content: '',
      calls: [
        ['look', CALL],
        ['go', '{}'],
      ],
    },
  ],
  [SOLAR, '<|think|>Hm.<|end|><|begin|>assistant<|content|>So.', { reasoning: 'Hm.', content: 'So.', calls: [] }],
];

/** Special tokens arrive whole. */
function tokens(reply: string): string[] {
  return reply.split(/(<\|[a-z_:]+\|>)|(?<=[^<])(?=.)/su).filter((token): token is string => Boolean(token));
}

t.test('thought, content and calls, wherever the reply is cut', (t) => {
  for (const [source, reply, expected] of CASES) {
    const all = tokens(reply);
    t.same(read(source, all), expected, reply);
    for (let at = 1; at < all.length; at++) {
      const got = read(source, [...all.slice(0, at), ...all.slice(at)].reduce<string[]>(paired(at), []));
      if (JSON.stringify(got) !== JSON.stringify(expected)) t.same(got, expected, `two tokens at once at ${at}`);
    }
  }
  t.end();
});

t.test('the end of a message in the same piece as the end of a call', (t) => {
  const call = `to=functions.look<|channel|>commentary json<|message|>${CALL}`;
  const expected = { reasoning: '', content: '', calls: [['look', CALL]] };
  for (const pieces of [
    [`${call}<|end|>`],
    [call.slice(0, -5), `${call.slice(-5)}<|end|>`],
    [call.slice(0, -5), `${call.slice(-5)}<|e`, 'nd|>'],
    [`${call.slice(0, call.indexOf('<|end|>'))}<|e`, `${call.slice(call.indexOf('nd|>'))}<|end|>`],
  ]) {
    t.same(read(HARMONY, pieces), expected);
  }
  const next = '<|end|><|start|>assistant<|channel|>final<|message|>So <|> it is.';
  t.same(read(HARMONY, [`${call}${next}`]), { ...expected, content: 'So <|> it is.' });
  t.end();
});

t.test('the header of a part in which the reply was cut is no content', (t) => {
  for (const reply of [
    '<|channel|>',
    '<|channel|>analysis<|message|>I must look.<|end|><|start|>assistant<|channel|>fin',
    `to=functions.look<|channel|>commentary json<|message|>${CALL}<|end|><|start|>assis`,
  ]) {
    t.equal(read(HARMONY, tokens(reply)).content, '', reply);
  }
  t.end();
});

/** Joins the token at `at` with the one before it, as steps that share a message do. */
function paired(at: number): (list: string[], token: string, index: number) => string[] {
  return (list, token, index) => {
    const last = list.length - 1;
    if (index === at) list[last] = (list[last] ?? '') + token;
    else list.push(token);
    return list;
  };
}
