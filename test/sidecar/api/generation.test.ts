import t from 'tap';
import { seatLength } from '../../../sidecar/api/generation.js';

t.test('a reply without a limit has the rest of the context, on the shortest seats with enough', async (t) => {
  t.equal(seatLength(2048, [2048]), 2048, 'with one length of seats all of it');
  for (const [promptTokens, length] of [
    [1, 1024],
    [512, 1024],
    [513, 8192],
    [4097, 8192],
    [9000, 8192],
  ] as const) {
    t.equal(seatLength(promptTokens, [1024, 8192]), length, `${promptTokens}`);
  }
});
