import t from 'tap';
import { withPrefixCache } from '../../../../engine/llama/memory/prefix-cache.js';
import { misfit, RESERVE, totalOf } from '../../../../engine/llama/memory/verdict.js';

const GIB = 2 ** 30;
const NONE = { weights: 0, perSeat: 0, compute: 0 };
const needs = { cpu: { weights: GIB, perSeat: GIB / 8, compute: 0 }, gpu: NONE };
const AGE = { maxAgeMs: 1000 };

t.test('a quarter of what is left, shared by all engines, at most 8 GiB, and none below 64 MiB', async (t) => {
  const of = (free: number, asked: object = {}, more: object = {}): number | undefined =>
    withPrefixCache(needs, { seats: 8, prefixCache: { ...AGE, ...asked }, ...more }, free + RESERVE).cpu.prefixCache;
  t.equal(of(6 * GIB), GIB, 'of 4 GiB that are left');
  t.equal(of(6 * GIB, { engines: 4 }), GIB / 4);
  t.equal(of(100 * GIB), 8 * GIB);
  t.equal(of(2.2 * GIB), 0, 'too little is left');
  t.equal(of(GIB), 0, 'nothing is left');
  t.equal(of(GIB, { bytes: 5 * GIB }), 5 * GIB, 'what is asked for');
  t.equal(of(6 * GIB, { bytes: 0 }), 0);
  t.equal(of(6 * GIB, {}, { prefixReuse: 'off' }), undefined, 'nothing is reused');
  t.equal(withPrefixCache(needs, { seats: 8 }, 100 * GIB), needs, 'absent: none');
});

t.test('it counts where memory is checked', async (t) => {
  const { cpu } = withPrefixCache(needs, { seats: 8, prefixCache: { ...AGE, bytes: 5 * GIB } }, 4 * GIB);
  t.equal(totalOf(cpu, 8), 7 * GIB);
  t.match(misfit(cpu, { seats: 8, contextPerSeat: 4096 }, 4 * GIB, 'memory'), /compute 0, prefix cache 5\) and/);
});
