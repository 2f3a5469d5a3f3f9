import t from 'tap';
import { textOf } from '../support/replies.js';
import { sharedSidecar } from '../support/shared-sidecar.js';

const sidecar = await sharedSidecar();

/** Prompts whose greedy replies differ much; some of them loop. */
const PROMPTS = ['Hello', 'time time time', 'Say it again and again', 'water', 'My house', 'a b c'];

t.test('the same seed repeats a reply that runs alone; another gives another', async (t) => {
  const options = { seed: 7, max_tokens: 40 };
  const first = await textOf(sidecar, 'Hello', options);
  t.equal(await textOf(sidecar, 'Hello', options), first);
  t.equal(await textOf(sidecar, 'Hello', { ...options, top_p: 1 }), first, 'top_p 1 equals no top_p');
  t.equal(
    await textOf(sidecar, 'Hello', { ...options, temperature: 1 }),
    first,
    'and temperature 1 equals no temperature',
  );
  for (const seed of [8, 9, -7, 7 + 2 ** 32, 2 ** 53 - 1]) {
    t.not(await textOf(sidecar, 'Hello', { ...options, seed }), first, `seed ${seed}`);
  }
});

t.test('without a seed replies differ', async (t) => {
  const texts = [
    await textOf(sidecar, 'Hello', { max_tokens: 40 }),
    await textOf(sidecar, 'Hello', { max_tokens: 40 }),
  ];
  t.not(texts[0], texts[1]);
});

t.test('temperature 0 takes the most likely token, whatever the seed', async (t) => {
  const greedy = await textOf(sidecar, 'Hello', { temperature: 0, max_tokens: 40 });
  t.equal(await textOf(sidecar, 'Hello', { temperature: 0, max_tokens: 40, seed: 5 }), greedy);
  t.equal(await textOf(sidecar, 'Hello', { top_p: 0, max_tokens: 40, seed: 6 }), greedy, 'as top_p 0 does');
});

/** The words of a text and whether one follows itself. */
function repeatsAtOnce(text: string): boolean {
  const words = text.split(/\s+/).filter((word) => word !== '');
  return words.some((word, i) => word === words[i + 1]);
}

t.test('frequency_penalty 2 breaks the loops of greedy replies', async (t) => {
  let looped = 0;
  for (const prompt of PROMPTS) {
    const options = { temperature: 0, max_tokens: 80 };
    const plain = await textOf(sidecar, prompt, options);
    const penalized = await textOf(sidecar, prompt, { ...options, frequency_penalty: 2 });
    if (repeatsAtOnce(plain)) looped += 1;
    t.notOk(repeatsAtOnce(penalized), 'no word follows itself');
    t.not(penalized, plain);
  }
  t.ok(looped > 0, 'without it one loops');
});
