/** What the addon drafts from a text, and how many tokens of it, without a model. */
import t from 'tap';
import { DRAFT_LENGTHS, engineAddon, type AddonDrafts } from '../../../../engine/llama/addon.js';
import { cpuLlama } from '../../../support/llama.js';

// The addon can be loaded once node-llama-cpp's is.
const llama = await cpuLlama(1);
t.teardown(() => llama.dispose());

t.test('what is drafted: the text after the longest earlier occurrence, and after a token in place of another', (t) => {
  const { RaDrafts } = engineAddon();
  const say = (drafts: AddonDrafts, from: number, ...tokens: readonly number[]): void =>
    tokens.forEach((token, i) => drafts.feed(from + i, token));
  const prompt = [1, 2, 3, 4, 5, 6, 7, 9, 9, 3, 4, 11, 12, 13, 14, 15, 16];
  const drafts = new RaDrafts(Uint32Array.from(prompt), 64);
  const at = prompt.length;
  t.same(
    [[...drafts.draft(4)], [...drafts.expected()]],
    [[], DRAFT_LENGTHS.map(() => 1)],
    'nothing before the reply has begun',
  );
  say(drafts, at, 3, 4);
  t.same([...drafts.draft(3)], [11, 12, 13], 'of two places with as much in common the later one');
  say(drafts, at + 2, 99);
  t.same([...drafts.draft(3)], [12, 13, 14], 'after a token in place of the one there');
  say(drafts, at + 2, 5, 6);
  t.same(
    [...drafts.draft(3)],
    [7, 9, 9],
    'another token than was told before: it has more in common with the other place',
  );
  say(drafts, at + 4, 7, 9, 9, 3);
  t.ok((drafts.expected()[1] ?? 0) > 3, 'after a long common text most drafts are expected to come');
  say(drafts, at + 5, 11, 12);
  t.same([...drafts.draft(3)], [13, 14, 15], 'what came after such a token is forgotten');
  t.same([...new RaDrafts(Uint32Array.of(7), 8).draft(3)], []);
  const repeats = new RaDrafts(Uint32Array.of(1, 2, 1, 2), 16);
  say(repeats, 4, 1, 2);
  t.same([...repeats.draft(5)], [1, 2, 1, 2, 1], 'past the end of the text it goes round');
  repeats.feed(9, 1);
  t.same([...repeats.draft(5)], [], 'nothing after tokens that it was not told');
  drafts.wipe();
  say(drafts, at + 7, 13);
  t.same([...drafts.draft(3)], []);
  t.end();
});

t.test('how many are drafted: within 5 % of the best number, off where it does not pay', (t) => {
  const { RaStepCosts } = engineAddon();
  const costs = {
    cpu: (tokens: number) => 4 + 3.2 * tokens,
    // As measured on an H200 (bench/results/gpu-steps-8b.md): reading the weights, and a little for each token.
    gpu: (tokens: number) => 4.3 + 0.16 * tokens,
  };
  for (const [device, ms] of Object.entries(costs))
    for (const sequences of [1, 2, 8, 64])
      for (let chance = 0; chance <= 1; chance += 0.1) {
        const stepMs = (choice: number): number => ms(sequences * (1 + (DRAFT_LENGTHS[choice] ?? 0)));
        const expected = Float64Array.from(DRAFT_LENGTHS, (drafts) => {
          let [sum, all] = [1, 1];
          for (let i = 0; i < drafts; i += 1) sum += all *= chance;
          return sequences * sum;
        });
        const alone = DRAFT_LENGTHS.map((drafts) => ms(1 + drafts) / ms(1));
        const chosen = new RaStepCosts(Float64Array.from(alone));
        let [tokens, took] = [0, 0];
        for (let step = 0; step < 2000; step += 1) {
          const choice = chosen.choose(sequences, expected, DRAFT_LENGTHS.length - 1);
          chosen.learn(sequences, choice, stepMs(choice));
          tokens += expected[choice] ?? 0;
          took += stepMs(choice);
        }
        const best = Math.max(...DRAFT_LENGTHS.map((_, choice) => (expected[choice] ?? 0) / stepMs(choice)));
        const share = tokens / took / best;
        t.ok(share > 0.95, `${device}, ${sequences} sequences, ${chance.toFixed(1)}: ${share.toFixed(3)} of the best`);
        const plain = sequences / stepMs(0);
        t.ok(tokens / took > 0.98 * plain, 'never slower than without');
        const mostMs = 2 * stepMs(0);
        const bounded = DRAFT_LENGTHS[chosen.choose(sequences, expected, DRAFT_LENGTHS.length - 1, mostMs)] ?? 0;
        t.ok(sequences === 1 || bounded === 0 || ms(sequences * (1 + bounded)) < 1.01 * mostMs, 'within the bound');
      }
  t.end();
});
