import t from 'tap';
import { ThoughtSplitter, type ReplyPiece } from '../../../engine/output/reply-text.js';
import type { ThoughtFormat } from '../../../engine/protocol/reply-format.js';

const THINK: ThoughtFormat = { open: false, starts: ['<think>'], ends: ['</think>'], implicitEnds: [], headers: [] };
const OPEN: ThoughtFormat = { ...THINK, open: true };
const ANYWHERE: ThoughtFormat = { ...THINK, anywhere: true };
const WRAPPED: ThoughtFormat = { ...THINK, wrap: ['<answer>', '</answer>'] };
const HARMONY: ThoughtFormat = {
  open: false,
  starts: ['<|channel|>analysis<|message|>', '<|start|>assistant<|channel|>analysis<|message|>'],
  ends: ['<|end|>'],
  implicitEnds: [],
  headers: ['<|channel|>final<|message|>', '<|start|>assistant<|channel|>final<|message|>'],
};

/** All parts of a reply that arrives in pieces. */
function split(format: ThoughtFormat, pieces: readonly string[]): ReplyPiece & { readonly thinking: boolean } {
  const splitter = new ThoughtSplitter(format);
  const given = pieces.map((piece) => splitter.push(piece));
  const { thinking } = splitter;
  const all = [...given, splitter.end()];
  return {
    reasoning: all.map(({ reasoning }) => reasoning).join(''),
    content: all.map(({ content }) => content).join(''),
    thinking,
  };
}

const CASES: readonly (readonly [string, ThoughtFormat, string, string, string])[] = [
  ['a thought, then content', THINK, '<think>\nHm. So.\n</think>\n\nYes.', 'Hm. So.', 'Yes.'],
  ['a thought that the prompt began', OPEN, '\nHm.\n\nSo.\n</think>\n\nYes.', 'Hm.\n\nSo.', 'Yes.'],
  ['white space before the mark', THINK, '\n <think>Hm.</think>Yes.', 'Hm.', 'Yes.'],
  ['no thought', THINK, ' Yes <b>.\n', '', ' Yes <b>.\n'],
  ['text similar to a mark', THINK, '<thin', '', '<thin'],
  ['an empty thought', THINK, '<think>\n\n</think>\n\nYes.', '', 'Yes.'],
  ['a mark later in the text', THINK, 'Say <think>no</think>.', '', 'Say <think>no</think>.'],
  ['a mark after the thought', THINK, '<think>Hm.</think>A <think>b</think>', 'Hm.', 'A <think>b</think>'],
  ['two thoughts in a row', THINK, '<think>Hm.</think>\n<think>So.</think>\nYes.', 'Hm.\nSo.', 'Yes.'],
  ['a thought that never ends', OPEN, 'Hm. </thin', 'Hm. </thin', ''],
  ['nothing after the thought', THINK, '<think>Hm.</think>\n\n', 'Hm.', ''],
  ['half a mark after the thought', THINK, '<think>Hm.</think>\n<th', 'Hm.', '<th'],
  ['an end mark without a thought', THINK, 'Yes</think>', '', 'Yes</think>'],
  [
    'a break ends it and is content',
    { ...OPEN, implicitEnds: ['<tool_call>'] },
    'Hm.\n<tool_call>\n{}',
    'Hm.',
    '<tool_call>\n{}',
  ],
  [
    'headers and turns of a format with channels',
    HARMONY,
    '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>analysis<|message|>So.<|end|>' +
      '<|start|>assistant<|channel|>final<|message|>Yes.',
    'Hm.\nSo.',
    'Yes.',
  ],
  ['a header alone', HARMONY, '<|channel|>final<|message|>Yes.', '', 'Yes.'],
  [
    'a channel that is neither',
    HARMONY,
    '<|channel|>commentary to=f<|message|>{}',
    '',
    '<|channel|>commentary to=f<|message|>{}',
  ],
  ['a thought within the content', ANYWHERE, 'Yes.<think>\nHm.</think>\n\nNo.', 'Hm.', 'Yes.No.'],
  ['an empty one at its end', ANYWHERE, '<think>Hm.</think>Yes.<think>\n</think>', 'Hm.', 'Yes.'],
  ['an end mark that ends none', ANYWHERE, 'Yes.</think>', '', 'Yes.'],
  ['the same at the beginning', ANYWHERE, '</think>Yes.', '', 'Yes.'],
  ['a wrapped answer', WRAPPED, '<think>Hm.</think>\n<answer>Yes.</answer>\n', 'Hm.', 'Yes.\n'],
  ['half of what wraps it', WRAPPED, '<think>Hm.</think><ans', 'Hm.', '<ans'],
  ['an answer that is not wrapped', WRAPPED, '<think>Hm.</think>Yes.</answer>', 'Hm.', 'Yes.</answer>'],
  ['without a thought the marks are text', WRAPPED, '<answer>Yes.</answer>', '', '<answer>Yes.</answer>'],
  ['a closing of the content', { ...OPEN, close: '</reply>' }, 'Hm.</think>Yes.</reply> more', 'Hm.', 'Yes.'],
  ['half a closing', { ...OPEN, close: '</reply>' }, 'Hm.</think>Yes.</rep', 'Hm.', 'Yes.</rep'],
];

t.test('wherever the text is cut', (t) => {
  for (const [what, format, text, reasoning, content] of CASES) {
    for (let one = 0; one <= text.length; one++) {
      const two = Math.min(text.length, one + 3);
      const got = split(format, [text.slice(0, one), text.slice(one, two), text.slice(two)]);
      if (got.reasoning !== reasoning || got.content !== content) {
        t.same(got, { reasoning, content }, `${what}, cut at ${one}`);
        break;
      }
    }
    t.match(split(format, Array.from(text)), { reasoning, content }, what);
  }
  t.end();
});

t.test('reports whether it is within a thought', (t) => {
  t.equal(split(OPEN, ['Hm.']).thinking, true);
  t.equal(split(THINK, ['<thi']).thinking, false);
  t.equal(split(THINK, ['<think>']).thinking, true);
  t.equal(split(THINK, ['<think>Hm.</think>']).thinking, false);
  t.end();
});

t.test('text is returned as soon as it is certain', (t) => {
  const splitter = new ThoughtSplitter(THINK);
  t.same(splitter.push('<think>\nHm'), { reasoning: 'Hm', content: '' });
  t.same(splitter.push(', <'), { reasoning: ',', content: '' });
  t.same(splitter.push('b'), { reasoning: ' <b', content: '' });
  t.same(splitter.push('</think>\n'), { reasoning: '', content: '' });
  t.same(splitter.push('Y'), { reasoning: '', content: 'Y' });
  t.same(splitter.push('<'), { reasoning: '', content: '<' });
  t.end();
});

t.test('buffered white space is bounded', (t) => {
  t.equal(new ThoughtSplitter(THINK).push(' '.repeat(1000)).content.length, 1000);
  const open = new ThoughtSplitter(OPEN);
  open.push('Hm.');
  t.equal(open.push(' '.repeat(1000)).reasoning.length, 1000);
  t.end();
});
