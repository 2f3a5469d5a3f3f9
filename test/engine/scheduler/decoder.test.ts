import t from 'tap';
import { FakeDecoder } from '../../support/fake-decoder.js';
import { keepsDecoderContract } from '../../support/decoder-contract.js';

/** Another token for every order of the tokens in a sequence. */
const next = (held: readonly number[]): number =>
  held.reduce((sum, token, at) => (sum * 31 + token * (at + 1)) % 997, 7);

t.test('the scheduler’s fake fulfils the decoder’s contract', async (t) => {
  for (const runTells of [0, 2, 3]) {
    const decoder = new FakeDecoder(next, { runTells, saves: true });
    await keepsDecoderContract(t, decoder);
    t.same(decoder.violations, []);
  }
});

t.test('and so does one that cannot copy', async (t) => {
  await keepsDecoderContract(t, new FakeDecoder(next, { copyable: false }));
});
