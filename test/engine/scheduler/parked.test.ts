/** Sequences beside the seats, which hold prefixes that were overwritten in a seat. */
import t from 'tap';
import { MOST_SAVED } from '../../../engine/protocol/messages.js';
import { Bench, job, StepTime, type BenchOptions } from '../../support/step-bench.js';

const HOUR = 3_600_000;

const prompt = (name: number, length = 100): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 1000 * (1 + name) + (i % 7));

/** One seat and two parked sequences. */
function bench(more: BenchOptions = {}): Bench {
  const cache = { saves: true, prefixCache: { bytes: 1e9, maxAgeMs: HOUR } };
  return new Bench(1, undefined, { contextPerSeat: 512, prefixReuse: 'any', parked: 2, ...cache, ...more });
}

let lastId = 0;
/** Runs a chat to its end; returns its cached tokens. */
async function chat(on: Bench, tokens: Uint32Array, scope = 'acme'): Promise<number | undefined> {
  const id = ++lastId;
  await on.run(id, () => on.loop.generate(id, job(tokens, { scope })));
  return on.cached(id);
}

t.test('an overwritten prefix is copied to a parked sequence and back, and from there to host memory', async (t) => {
  const on = bench();
  for (const name of [0, 1, 2]) await chat(on, prompt(name));
  t.same(on.decoder.copies, [
    [1, 0],
    [2, 0],
  ]);
  t.same(on.decoder.moves, [], 'while there is an empty one nothing is copied to host memory');
  t.equal(await chat(on, prompt(0)), 99);
  t.same(on.decoder.copies.slice(2), [
    [2, 0],
    [0, 1],
  ]);
  t.same(on.decoder.moves, [['save', 2, 103]], 'of the others the one that was not used for longest');
  t.equal(await chat(on, prompt(1)), 99, 'restored');
  t.equal(await chat(on, prompt(2)), 99);
  t.same(on.decoder.violations, []);
  t.same(on.loop.report.tokens, { running: 0, kept: 309 });
});

t.test('a conversation that grew replaces its own beginning', async (t) => {
  const on = bench();
  await chat(on, prompt(0));
  await chat(on, prompt(1));
  const turn = Uint32Array.of(...prompt(0), ...Buffer.from('vwx'), ...prompt(2));
  t.equal(await chat(on, turn), 103);
  on.decoder.copies.length = 0;
  await chat(on, prompt(3));
  t.same(on.decoder.copies, [[1, 0]]);
  t.equal(on.decoder.held.get(1)?.length, 206);
  t.same(on.decoder.moves, []);
  t.equal(await chat(on, prompt(1)), 99, 'another one is not touched');
});

t.test('what is parked is reported, kept from other accounts, and forgotten with its account', async (t) => {
  const on = bench();
  await chat(on, prompt(0), 'acme');
  await chat(on, prompt(1), 'globex');
  t.ok(on.held.some(({ sequence, hashes }) => sequence === 1 && hashes.length > 0));
  t.ok(on.held.every(({ sequence }) => sequence < 1 + MOST_SAVED));
  t.equal(await chat(on, prompt(0), 'globex'), 0);
  t.equal(await chat(on, prompt(0), 'acme'), 99);
  await on.loop.forget('acme');
  t.equal(await chat(on, prompt(0), 'acme'), 0);
});

t.test('what is parked is as old as its last use', async (t) => {
  const clock = new StepTime();
  const on = bench({ clock });
  await chat(on, prompt(0));
  clock.ms += 0.6 * HOUR;
  await chat(on, prompt(1));
  clock.ms += 0.6 * HOUR;
  await on.loop.tidy();
  t.equal(await chat(on, prompt(0)), 0);
  t.equal(await chat(on, prompt(1)), 99);
});

t.test('a copy that fails loses the prefix alone, and no copy is made where sequences cannot be copied', async (t) => {
  const on = bench();
  await chat(on, prompt(0));
  on.decoder.failingCopies.add(1);
  await chat(on, prompt(1));
  t.equal(await chat(on, prompt(0)), 0);
  t.same(on.decoder.violations, []);
  const without = bench({ copyable: false });
  await chat(without, prompt(0));
  await chat(without, prompt(1));
  t.same([without.decoder.copies, without.decoder.moves], [[], [['save', 0, 103]]]);
});
