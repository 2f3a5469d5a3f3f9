import t from 'tap';
import { promptIds, promptLength, tokenPrompt } from '../../../engine/protocol/prompt.js';

t.test('a prompt has one id for each position, in the order of its segments', async (t) => {
  const [head, tail] = [Uint32Array.of(1, 2, 3), Uint32Array.of(4)];
  const prompt = [...tokenPrompt(head), ...tokenPrompt(new Uint32Array(0)), ...tokenPrompt(tail)];
  t.equal(promptLength(prompt), 4);
  t.same([...promptIds(prompt)], [1, 2, 3, 4]);
  t.equal(promptLength([]), 0);
  t.equal(promptIds([]).length, 0);
});

t.test('one segment’s ids are its tokens themselves: nothing is copied', async (t) => {
  const tokens = Uint32Array.of(1, 2, 3);
  t.equal(promptIds(tokenPrompt(tokens)), tokens);
});
