import fc from 'fast-check';
import t from 'tap';
import { REQUEST_AHEAD_TOKENS, type Output } from '../../../engine/protocol/jobs.js';
import { rounds } from '../../support/long-form.js';
import { Bench, job } from '../../support/step-bench.js';

/** Until the loop has nothing to decode: it would have had turns enough. */
async function still(bench: Bench): Promise<void> {
  for (let turns = 0, before = -1; turns < 50; turns += 1) {
    await new Promise(setImmediate);
    if (bench.decoder.steps.length !== before) turns = 0;
    before = bench.decoder.steps.length;
  }
}

const finished = (bench: Bench, id = 1): Output | undefined => bench.of(id).find(({ kind }) => kind === 'finished');
const asks = (bench: Bench): Output[] => bench.of(1).filter(({ kind }) => kind === 'needsTokens');

t.test('a reply waits at its limit for another one, while others go on, and no token is decoded past it', async (t) => {
  for (const runTells of [0, 1, 3]) {
    const bench = new Bench(2, undefined, { runTells, contextPerSeat: 256 });
    bench.loop.generate(1, job(3, { maxTokens: 50, limit: 4 }));
    await still(bench);
    t.equal(bench.text(1), 'cdef');
    t.same(asks(bench), [{ id: 1, kind: 'needsTokens', choice: 0, tokens: 1 }], 'once');
    bench.loop.generate(2, job(1, { maxTokens: 30 }));
    await bench.ends(2);
    t.equal(bench.text(1), 'cdef');
    bench.loop.limit(1, { tokens: 10, last: false });
    await still(bench);
    t.equal(bench.text(1), 'cdefghijkl');
    t.equal(asks(bench).length, 2);
    bench.loop.limit(1, { tokens: 12, last: true });
    await bench.ends(1);
    t.match(finished(bench), { reason: 'length', completionTokens: 12 });
    t.equal(bench.text(1), 'cdefghijklmn');
    t.equal(bench.loop.live, 0);
  }
});

t.test('a reply that waits ends with the answer that there are no more', async (t) => {
  const bench = new Bench(1, undefined, { runTells: 2 });
  bench.loop.generate(1, job(3, { maxTokens: 50, limit: 4 }));
  await still(bench);
  const steps = bench.decoder.steps.length;
  bench.loop.limit(1, { tokens: 4, last: true });
  await bench.ends(1);
  t.match(finished(bench), { reason: 'length', completionTokens: 4 });
  t.equal(bench.decoder.steps.length, steps, 'nothing was decoded for it');
  bench.loop.limit(1, { tokens: 9, last: true });
  bench.loop.generate(2, job(3));
  await bench.ends(2);
});

t.test('further replies of a job begin with the limit that it has by then', async (t) => {
  const bench = new Bench(1);
  bench.loop.generate(1, job(3, { maxTokens: 20, limit: 2, n: 2, seats: 1 }));
  await still(bench);
  bench.loop.limit(1, { tokens: 5, last: true });
  await bench.ends(1);
  t.equal(bench.text(1, 1), 'cdefg');
});

t.test('a reply asks once it has as many tokens left as it takes to be answered', async (t) => {
  const bench = new Bench(1, undefined, { contextPerSeat: 1024 });
  bench.loop.generate(1, job(1, { maxTokens: 900, limit: REQUEST_AHEAD_TOKENS + 5 }));
  await still(bench);
  t.same(asks(bench), [{ id: 1, kind: 'needsTokens', choice: 0, tokens: 5 }]);
  bench.loop.cancel(1);
  await still(bench);
  t.equal(bench.loop.live, 0, 'one that waits can be cancelled');
});

t.test(
  'whatever limits come, and whenever: no reply has more tokens than its last one, and each one ends',
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ most: fc.integer({ min: 1, max: 40 }), n: fc.integer({ min: 1, max: 3 }) }), {
          minLength: 1,
          maxLength: 4,
        }),
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 }),
        fc.integer({ min: 0, max: 4 }),
        fc.boolean(),
        async (jobs, parts, runTells, late) => {
          const bench = new Bench(4, undefined, { runTells });
          const limits = new Map<number, number>();
          bench.onOutputs = (outputs) => {
            for (const output of outputs) {
              const limit = limits.get(output.id) ?? 0;
              if ('tokens' in output && output.kind === 'piece' && output.tokens > limit)
                throw new Error('past its limit');
              if (output.kind !== 'needsTokens') continue;
              const { id, tokens } = output;
              const most = jobs[id - 1]?.most ?? 0;
              const next = Math.min(most, limit + (parts[(id + tokens) % parts.length] ?? 1));
              // Some are refused.
              const last = next === most || (id + tokens) % 5 === 0;
              const answer = (): void => {
                limits.set(id, last && next < most ? limit : next);
                bench.loop.limit(id, { tokens: limits.get(id) ?? 0, last });
              };
              if (late) setTimeout(answer, 0);
              else answer();
            }
          };
          jobs.forEach(({ most, n }, i) => {
            const limit = Math.min(most, parts[i % parts.length] ?? 1);
            limits.set(i + 1, limit);
            bench.loop.generate(i + 1, job(2, { maxTokens: most, n, seats: 1, ...(limit < most && { limit }) }));
          });
          await Promise.all(jobs.map((_, i) => bench.ends(i + 1)));
          for (const [i] of jobs.entries()) {
            for (const output of bench.of(i + 1)) {
              if (output.kind === 'finished' && output.completionTokens > (limits.get(i + 1) ?? 0))
                throw new Error('finished past its limit');
            }
          }
        },
      ),
      { numRuns: rounds({ short: 15, long: 1000 }) },
    );
  },
);
