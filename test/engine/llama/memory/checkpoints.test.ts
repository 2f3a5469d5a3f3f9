import t from 'tap';
import { withCheckpoints, withDrafts } from '../../../../engine/llama/memory/estimate.js';
import { misfit, RESERVE, totalOf } from '../../../../engine/llama/memory/verdict.js';

const GIB = 2 ** 30;
const NONE = { weights: 0, perSeat: 0, compute: 0 };
const needs = { cpu: { weights: GIB, perSeat: GIB / 8, compute: 0 }, gpu: NONE };

t.test('twice the past state of all seats, at most a quarter of the free memory and 8 GiB', async (t) => {
  const of = (free: number, asked?: number): number | undefined =>
    withCheckpoints(needs, 8, true, asked, free + RESERVE).cpu.checkpoints;
  t.equal(of(100 * GIB), 2 * GIB);
  t.equal(of(6 * GIB), GIB, 'of 4 GiB of free memory');
  t.equal(of(GIB), 0, 'nothing is left');
  t.equal(of(GIB, 5 * GIB), 5 * GIB, 'the configured value');
  const large = { cpu: NONE, gpu: { ...NONE, perSeat: GIB } };
  t.equal(withCheckpoints(large, 64, true, undefined, 1000 * GIB).cpu.checkpoints, 8 * GIB);
});

t.test('none if past state can be truncated', async (t) => {
  t.equal(withCheckpoints(needs, 8, false, GIB, 100 * GIB), needs);
});

t.test('they count in the memory check', async (t) => {
  const { cpu } = withCheckpoints(needs, 8, true, 5 * GIB, 4 * GIB);
  t.equal(totalOf(cpu, 8), 7 * GIB);
  t.match(misfit(cpu, { seats: 8, contextPerSeat: 4096 }, 4 * GIB, 'memory'), /compute 0, checkpoints 5\) and/);
});

t.test('drafts count too: logits of a step, and for each seat its text with its tables', async (t) => {
  const plan = { contextPerSeat: 4096, batchSize: 256, truncatable: true };
  const setup = { kind: 'chat', speculation: 'auto' } as const;
  const { cpu } = withDrafts(needs, setup, plan, 50_000);
  t.strictSame(cpu.drafts, { logits: 4 * 256 * 50_000, perSeat: 2 * 4 * 4096 + 12 * 4096 });
  t.equal(totalOf(cpu, 8) - totalOf(needs.cpu, 8), 51_200_000 + 8 * 81_920);
  t.match(misfit(cpu, { seats: 8, contextPerSeat: 4096 }, GIB, 'memory'), /, drafts 0.05\) and/);
  const long = { ...plan, contextPerSeat: 1 << 20, batchSize: 4096 };
  t.strictSame(withDrafts(needs, setup, long, 150_000).cpu.drafts, {
    logits: 2 ** 26,
    perSeat: 2 ** 19 + 12 * 2 ** 20,
  });
  for (const none of [
    withDrafts(needs, { kind: 'chat', speculation: 'off' }, plan, 50_000),
    withDrafts(needs, { kind: 'decision', speculation: 'auto' }, plan, 50_000),
    withDrafts(needs, setup, { ...plan, truncatable: false }, 50_000),
  ])
    t.equal(none, needs);
});
