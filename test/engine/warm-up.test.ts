import t from 'tap';
import { warmUp } from '../../engine/warm-up.js';
import { FakeDecoder } from '../support/fake-decoder.js';
import { alphabet, model } from '../support/step-bench.js';

const LIMITS = {
  seats: 2,
  contextPerSeat: 64,
  prefillTokensPerStep: 64,
  prefillShare: 100,
  prefixReuse: 'auto',
} as const;

const holds = ({ held }: FakeDecoder): number[][] => [...held.values()].filter(({ length }) => length > 0);

t.test('a prompt and a step of a reply, and nothing is left of them', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, model, LIMITS);
  const steps = decoder.steps.map((parts) => parts.map(({ kind, tokens }) => `${kind} ${tokens.length}`));
  t.strictSame(steps.at(0), ['sample 16']);
  t.strictSame(steps.at(-1), ['sample 1']);
  t.strictSame(holds(decoder), []);
  t.ok(decoder.samplers.every(({ disposed }) => disposed));
  t.strictSame(decoder.violations, []);
});

t.test('also where the first token is an end', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, { ...model, isEnd: () => true }, LIMITS);
  t.match(decoder.steps.at(-1), [{ kind: 'sample', tokens: { length: 1 } }]);
});

t.test('a context that has hardly room', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, model, { ...LIMITS, contextPerSeat: 4 });
  t.strictSame(holds(decoder), []);
  t.equal(
    decoder.steps.flat().reduce((sum, { tokens }) => sum + tokens.length, 0),
    3,
    'two of a prompt, one of a reply',
  );
});

t.test('on a GPU as many tokens of a prompt as choose the kernels of long ones', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, model, { ...LIMITS, contextPerSeat: 128 }, 'gpu');
  t.match(decoder.steps.at(0), [{ tokens: { length: 64 } }]);
});

t.test('a model that cannot decode is not ready, whatever else fails with it', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  decoder.failing.add(0);
  decoder.truncate = () => Promise.reject(new Error('the context is broken'));
  await t.rejects(warmUp(decoder, model, LIMITS), { message: /^a first reply failed: / });
});
