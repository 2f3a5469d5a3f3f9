import t from 'tap';
import { parkedSequences, savesToPages, withPrefixCache } from '../../../../engine/llama/memory/estimate.js';
import { misfit, RESERVE, totalOf } from '../../../../engine/llama/memory/verdict.js';

const GIB = 2 ** 30;
const NONE = { weights: 0, perSeat: 0, compute: 0 };
const needs = { cpu: { weights: GIB, perSeat: GIB / 8, compute: 0 }, gpu: NONE };
const AGE = { maxAgeMs: 1000 };

t.test('a quarter of the free memory, shared by all engines, at most 8 GiB, and none below 64 MiB', async (t) => {
  const of = (
    free: number,
    asked: object = {},
    more: object = {},
    room: number | undefined = 1000 * GIB,
  ): number | undefined =>
    withPrefixCache(needs, { seats: 8, prefixCache: { ...AGE, ...asked }, ...more }, free + RESERVE, room).cpu
      .prefixCache;
  t.equal(of(6 * GIB), GIB, 'of 4 GiB of free memory');
  t.equal(of(6 * GIB, { engines: 4 }), GIB / 4);
  t.equal(of(100 * GIB), 8 * GIB);
  t.equal(of(2.2 * GIB), 0, 'too little is free');
  t.equal(of(GIB), 0, 'nothing is left');
  t.equal(of(GIB, { bytes: 5 * GIB }), 5 * GIB, 'the configured value');
  t.equal(of(6 * GIB, { bytes: 0 }), 0);
  t.equal(of(6 * GIB, {}, { prefixReuse: 'off' }), undefined, 'nothing is reused');
  t.equal(withPrefixCache(needs, { seats: 8 }, 100 * GIB, 0), needs, 'absent: none');
});

t.test('at most what files in memory can take in all, whatever is asked for', async (t) => {
  const of = (room: number | undefined, asked: object = {}): number | undefined =>
    withPrefixCache(needs, { seats: 8, prefixCache: { ...AGE, ...asked } }, 100 * GIB, room).cpu.prefixCache;
  t.equal(of(3 * GIB), 3 * GIB);
  t.equal(of(3 * GIB, { engines: 2 }), 1.5 * GIB);
  t.equal(of(GIB / 16), GIB / 16, 'what a container has by default');
  t.equal(of(GIB / 16, { engines: 2 }), 0, 'for two engines that is too little');
  t.equal(of(GIB / 16, { bytes: 5 * GIB }), GIB / 16);
  t.equal(of(6 * GIB, { bytes: 5 * GIB, engines: 2 }), 5 * GIB, 'a configured value is not divided');
  t.equal(of(undefined), 0, 'a system without any');
});

t.test(
  'a quarter of the GPU memory that is left is for parked sequences, if a successor fits, with llama.cpp’s 256 at most in all',
  async (t) => {
    const gpu = { weights: 8 * GIB, perSeat: GIB, compute: GIB };
    const of = (free: number, asked: object = {}, seats = 8, more: object = {}): number =>
      parkedSequences(gpu, { seats, prefixCache: { ...AGE, ...asked }, ...more }, free + RESERVE);
    t.equal(of(57 * GIB), 10, 'of 40 GiB');
    t.equal(of(36 * GIB), 2, 'beside them a successor fits that takes 17 GiB');
    t.equal(of(25 * GIB), 0, 'none does');
    t.equal(of(GIB), 0, 'nothing is left');
    t.equal(of(9000 * GIB, {}, 250), 6);
    t.equal(of(137 * GIB, { bytes: GIB }), 30);
    for (const none of [{ bytes: 0 }, { beside: 1 }, { shared: true }]) t.equal(of(137 * GIB, none), 0);
    t.equal(of(137 * GIB, {}, 8, { prefixReuse: 'off' }), 0);
    t.equal(of(137 * GIB, {}, 8, { prefixCache: undefined }), 0, 'nothing is saved');
  },
);

t.test('states of a GPU are in pinned memory unless other processes open them', async (t) => {
  const of = (gpuLayers: number, shared: boolean): boolean =>
    savesToPages(gpuLayers, { prefixCache: { ...AGE, shared } });
  t.same([of(1, false), of(1, true), of(0, false)], [true, false, false]);
});

t.test('it counts in the memory check', async (t) => {
  const { cpu } = withPrefixCache(needs, { seats: 8, prefixCache: { ...AGE, bytes: 5 * GIB } }, 4 * GIB, 9 * GIB);
  t.equal(totalOf(cpu, 8), 7 * GIB);
  t.match(misfit(cpu, { seats: 8, contextPerSeat: 4096 }, 4 * GIB, 'memory'), /compute 0, prefix cache 5\) and/);
});
