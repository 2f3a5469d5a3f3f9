import t from 'tap';
import { controlText, tokenBytes } from '../../../engine/llama/model-tokens.js';

const never = (): string => {
  throw new Error('not to be asked');
};

t.test('byte-level BPE: every byte has its stand-in', (t) => {
  // GPT-2’s own list, in its order: printable characters first, then the rest from U+0100 on.
  const printable = [...range(0x21, 0x7e), ...range(0xa1, 0xac), ...range(0xae, 0xff)];
  const rest = range(0, 0xff).filter((byte) => !printable.includes(byte));
  const tokens = [
    ...printable.map((byte) => String.fromCodePoint(byte)),
    ...rest.map((_, i) => String.fromCodePoint(0x100 + i)),
  ];
  const bytes = tokenBytes({ model: 'gpt2', tokens, types: tokens.map(() => 1), detokenize: never });
  t.same(
    tokens.map((_, token) => [...bytes(token)]),
    [...printable, ...rest].map((byte) => [byte]),
  );
  t.end();
});

t.test('byte-level BPE: words, control and user-defined tokens', (t) => {
  const bytes = tokenBytes({
    model: 'gpt2',
    tokens: ['Ġhello', 'ĊĊ', '<|im_end|>', '<think>', 'Ã©'],
    types: [1, 1, 3, 4, 1],
    detokenize: never,
  });
  t.same(
    [0, 1, 2, 3, 4, 5].map((token) => Buffer.from(bytes(token)).toString()),
    [' hello', '\n\n', '', '<think>', 'é', ''],
  );
  t.equal(bytes(0), bytes(0), 'worked out once');
  t.end();
});

t.test('the names of control tokens', (t) => {
  const texts = { model: 'gpt2', tokens: ['Ġhello', '<|im_end|>', '<think>'], detokenize: never };
  const names = (types: number[] | undefined) => [0, 1, 2, 3].map(controlText({ ...texts, types }));
  t.same(names([1, 3, 4]), [undefined, '<|im_end|>', undefined, undefined]);
  t.same(names(undefined), [undefined, undefined, undefined, undefined]);
  t.end();
});

t.test('SentencePiece: spaces and byte tokens', (t) => {
  const bytes = tokenBytes({
    model: 'llama',
    tokens: ['▁the', '<0xE2>', '</s>', 'x'],
    types: [1, 6, 3, 1],
    detokenize: never,
  });
  t.same(
    [0, 1, 2, 3].map((token) => [...bytes(token)]),
    [[...Buffer.from(' the')], [0xe2], [], [0x78]],
  );
  t.end();
});

t.test('for other vocabularies the tokenizer is called', (t) => {
  const bytes = tokenBytes({ model: 'bert', tokens: ['##x'], types: undefined, detokenize: () => 'x' });
  t.equal(Buffer.from(bytes(0)).toString(), 'x');
  t.end();
});

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}
