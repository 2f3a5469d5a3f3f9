import t from 'tap';
import { withCheckpoints } from '../../../../engine/llama/memory/estimate.js';
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
