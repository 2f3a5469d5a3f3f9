import t from 'tap';
import { warmUp } from '../../../engine/scheduler/warm-up.js';
import { FakeDecoder } from '../../support/fake-decoder.js';
import { alphabet, model } from '../../support/step-bench.js';

const LIMITS = {
  seats: 2,
  contextPerSeat: 64,
  prefillTokensPerStep: 64,
  prefillShare: 100,
  prefixReuse: 'auto',
  origin: { weights: '', kv: 'f16' },
} as const;

const holds = ({ held }: FakeDecoder): number[][] => [...held.values()].filter(({ length }) => length > 0);

t.test('it runs a prompt and a step of a reply, and leaves nothing', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, model, LIMITS);
  const steps = decoder.steps.map((parts) => parts.map(({ kind, tokens }) => `${kind} ${tokens.length}`));
  t.strictSame(steps.at(0), ['sample 16']);
  t.strictSame(steps.at(-1), ['sample 1']);
  t.strictSame(holds(decoder), []);
  t.ok(decoder.samplers.every(({ disposed }) => disposed));
  t.strictSame(decoder.violations, []);
});

t.test('also if the first token is an end', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, { ...model, isEnd: () => true }, LIMITS);
  t.match(decoder.steps.at(-1), [{ kind: 'sample', tokens: { length: 1 } }]);
});

t.test('a context with little room', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, model, { ...LIMITS, contextPerSeat: 4 });
  t.strictSame(holds(decoder), []);
  t.equal(
    decoder.steps.flat().reduce((sum, { tokens }) => sum + tokens.length, 0),
    3,
    'two of a prompt, one of a reply',
  );
});

t.test('on a GPU as many prompt tokens as select the kernels of long ones', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, model, { ...LIMITS, contextPerSeat: 128, prefillTokensPerStep: 512 }, 'gpu');
  t.ok(decoder.steps.flat().some(({ tokens }) => tokens.length === 64));
});

t.test('on a GPU next tokens of as many sequences as have separate kernels', async (t) => {
  for (const [seats, wanted] of [
    [1, [1]],
    [3, [1, 2, 3]],
    [8, [1, 2, 3, 4, 5, 6, 7, 8]],
    [12, [1, 2, 3, 4, 5, 6, 7, 8, 12]],
    [100, [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]],
  ] as const) {
    const decoder = new FakeDecoder(alphabet);
    await warmUp(decoder, model, { ...LIMITS, contextPerSeat: 128, prefillTokensPerStep: 512, seats }, 'gpu');
    const together = decoder.steps.filter((parts) => parts.every(({ tokens }) => tokens.length === 1));
    const numbers = new Set(together.map(({ length }) => length));
    t.strictSame(
      wanted.filter((number) => !numbers.has(number)),
      [],
      `${seats} seats: ${[...numbers].join(' ')}`,
    );
    t.ok(decoder.steps.length < 20, `${decoder.steps.length} steps`);
    t.strictSame(holds(decoder), []);
    t.strictSame(decoder.violations, []);
  }
});

t.test('on a GPU where a seat has little room', async (t) => {
  const decoder = new FakeDecoder(alphabet);
  await warmUp(decoder, model, { ...LIMITS, contextPerSeat: 4, seats: 9 }, 'gpu');
  t.strictSame(holds(decoder), []);
  t.strictSame(decoder.violations, []);
});

t.test('a model that cannot decode is not ready, whatever else fails with it', async (t) => {
  for (const device of ['cpu', 'gpu'] as const) {
    const decoder = new FakeDecoder(alphabet);
    decoder.failing.add(0);
    decoder.states.truncate = () => Promise.reject(new Error('the context is broken'));
    await t.rejects(warmUp(decoder, model, LIMITS, device), { message: /^a first reply failed: / }, device);
  }
});
