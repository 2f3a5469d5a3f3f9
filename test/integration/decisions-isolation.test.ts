/**
 * An answer depends only on its own question and input (docs/contract.md#post-decisions), to the last bit, whatever
 * else runs.
 */
import t from 'tap';
import { chunksOf } from '../support/replies.js';
import { sharedSidecar } from '../support/shared-sidecar.js';
import { DECIDE } from '../support/sidecar.js';

const sidecar = await sharedSidecar();

/** Longer than one prefill step, so that splits matter. */
const INPUT = 'I was charged twice. Please send the second payment back. '.repeat(40);
const QUESTIONS = [
  { id: 'refund', type: 'yes_no', question: 'Does the customer ask for a refund?' },
  { id: 'team', type: 'choice', question: 'Who handles this?', options: [{ name: 'billing' }, { name: 'support' }] },
  { id: 'urgency', type: 'score', question: 'How urgent is it?', levels: ['can wait', 'today', 'now'] },
  { id: 'wordy', type: 'yes_no', question: `Is any of this true: ${'the customer is angry, '.repeat(60)}?` },
];

/** Each answer as JSON text: equal texts are equal numbers, bit by bit. */
async function answersTo(questions: readonly { readonly id: string }[], input = INPUT): Promise<Map<string, string>> {
  const response = await sidecar.post('/decisions', { model: DECIDE, input, questions });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status} ${text}`);
  const { answers } = JSON.parse(text) as { answers: Readonly<Record<string, unknown>> };
  return new Map(questions.map(({ id }) => [id, JSON.stringify(answers[id])]));
}

const alone = new Map<string, string>();

t.test('each question alone, twice', async (t) => {
  for (const question of QUESTIONS) {
    const [[id, answer] = ['', '']] = await answersTo([question]);
    alone.set(id, answer);
    t.same(await answersTo([question]), new Map([[id, answer]]), 'the same again');
  }
  t.equal(new Set(alone.values()).size, QUESTIONS.length, 'the answers differ from each other');
});

t.test('with other questions, in any order', async (t) => {
  for (const questions of [QUESTIONS, QUESTIONS.toReversed(), QUESTIONS.slice(1, 3)]) {
    for (const [id, answer] of await answersTo(questions)) t.equal(answer, alone.get(id), id);
  }
});

t.test('beside other decision requests', async (t) => {
  const others = Array.from({ length: 4 }, (_, i) => answersTo(QUESTIONS.slice(0, 1 + (i % 3)), `Another one, ${i}.`));
  const ours = await Promise.all([answersTo(QUESTIONS), answersTo(QUESTIONS.toReversed())]);
  for (const answers of ours) for (const [id, answer] of answers) t.equal(answer, alone.get(id), id);
  const theirs = await Promise.all(others);
  t.equal(new Set(theirs.map((answers) => answers.get('refund'))).size, theirs.length, 'these had other answers');
});

t.test('beside running chats', async (t) => {
  // A reward for repetition makes them run to the end of their context.
  const body = { messages: [{ role: 'user', content: 'Hello' }], stream: true, temperature: 0, frequency_penalty: -2 };
  const chats = await Promise.all([sidecar.chat(body), sidecar.chat(body), sidecar.chat(body)]);
  for (const [id, answer] of await answersTo(QUESTIONS)) t.equal(answer, alone.get(id), id);
  for (const chat of chats) t.equal(chunksOf(await chat.text()).at(-1)?.choices[0]?.finish_reason, 'length');
});
