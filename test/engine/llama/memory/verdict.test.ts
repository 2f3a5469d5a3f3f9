import t from 'tap';
import { MOST_SEATS } from '../../../../engine/protocol/setup.js';
import { loadConfig } from '../../../../sidecar/config/config.js';
import {
  firstProblem,
  misfit,
  RESERVE,
  seatsThatFit,
  tooHeavy,
  totalOf,
  usableOf,
} from '../../../../engine/llama/memory/verdict.js';

const GIB = 2 ** 30;
const need = { weights: 8 * GIB, perSeat: 0.4 * GIB, compute: 0.3 * GIB };
const plan = { seats: 16, contextPerSeat: 8192 };

t.test('a need equal to the free memory fits', (t) => {
  const total = need.weights + 16 * need.perSeat + need.compute;
  t.equal(misfit(need, plan, total + RESERVE, 'memory'), undefined);
  t.type(misfit(need, plan, total + RESERVE - 1, 'memory'), 'string');
  t.equal(tooHeavy(GIB, GIB + RESERVE, 'memory'), undefined);
  t.end();
});

t.test('what the line proposes does fit, and one seat or one context step more does not', (t) => {
  const free = 10 * GIB + RESERVE;
  const usable = usableOf(free);
  t.equal(seatsThatFit(need, usable), 4);
  t.ok(totalOf(need, 4) <= usable && totalOf(need, 5) > usable);
  const shorter = (tokens: number): number => totalOf({ ...need, perSeat: (need.perSeat / 8192) * tokens }, 16);
  t.ok(shorter(2048) <= usable && shorter(2048 + 256) > usable);
  t.equal(seatsThatFit(need, 8 * GIB), 0, 'the weights alone fill it');
  t.end();
});

t.test('grammars count: a shared part, and a part for each seat', (t) => {
  const chat = { ...need, grammars: { stores: 0.14 * GIB, perSeat: 0.01 * GIB } };
  const free = 10 * GIB + RESERVE;
  t.equal(
    misfit(chat, plan, free, 'memory'),
    'it needs 15 GiB of memory (weights 8, KV 6.4 for 16 seats of 8,192 tokens, compute 0.3, grammars 0.3) and 10 GiB are free. ' +
      'Fewer seats or a smaller context fit: at most 3 seats, or 1,536 tokens for each of 16',
  );
  const usable = usableOf(free);
  t.equal(seatsThatFit(chat, usable), 3);
  t.ok(totalOf(chat, 3) <= usable && totalOf(chat, 4) > usable);
  const shorter = (tokens: number): number => totalOf({ ...chat, perSeat: (need.perSeat / 8192) * tokens }, 16);
  t.ok(shorter(1536) <= usable && shorter(1536 + 256) > usable);
  t.end();
});

t.test('the line has the numbers and what would fit', (t) => {
  t.equal(
    misfit(need, plan, 10 * GIB + RESERVE, 'memory'),
    'it needs 14.7 GiB of memory (weights 8, KV 6.4 for 16 seats of 8,192 tokens, compute 0.3) and 10 GiB are free. ' +
      'Fewer seats or a smaller context fit: at most 4 seats, or 2,048 tokens for each of 16',
  );
  t.match(misfit(need, plan, 8.8 * GIB + RESERVE, 'memory'), /at most 1 seat, or 512 tokens for each of 16$/);
  t.match(misfit(need, { seats: 200, contextPerSeat: 8192 }, 8.8 * GIB + RESERVE, 'memory'), /at most 1 seat$/);
  t.match(misfit(need, plan, 8.5 * GIB, 'GPU memory'), /GiB of GPU memory .* Not even one seat fits: use a smaller/);
  t.match(misfit(need, { ...plan, seats: 1 }, 0, 'memory'), /for 1 seat of .* and 0 GiB are free\. Not even one/);
  t.equal(
    tooHeavy(8 * GIB, 2 * GIB + RESERVE, 'memory'),
    'its weights alone need 8 GiB of memory and 2 GiB are free: use a smaller model',
  );
  t.end();
});

t.test('where the reserve is the reason, the line names it and the setting', (t) => {
  const kept =
    /and 0 GiB may be used: 0\.25 GiB are free, of which 0\.25 GiB are kept for other .*engine\.checkMemory: false/;
  t.match(misfit(need, plan, RESERVE, 'memory'), kept);
  t.match(tooHeavy(GIB / 8, RESERVE, 'memory'), kept);
  t.match(
    tooHeavy(GIB / 8, RESERVE, 'memory'),
    /: free some memory, or use a smaller model$/,
    'it is smaller than what is free',
  );
  t.end();
});

t.test('at most the seats that an engine can have', (t) => {
  t.equal(seatsThatFit({ weights: 0, perSeat: 1, compute: 0 }, GIB), MOST_SEATS);
  t.equal(seatsThatFit({ weights: 0, perSeat: 0, compute: 0 }, GIB), MOST_SEATS, 'a seat takes nothing');
  t.equal(
    loadConfig({ RA_MODELS: JSON.stringify([{ id: 'a', file: '/a', kind: 'chat', seats: MOST_SEATS }]) }).kind,
    'config',
  );
  t.match(loadConfig({ RA_MODELS: JSON.stringify([{ id: 'a', file: '/a', kind: 'chat', seats: MOST_SEATS + 1 }]) }), {
    kind: 'invalid',
  });
  t.end();
});

t.test('where a GPU is too small, the line names the setting that leaves layers to the CPU', (t) => {
  t.equal(firstProblem(undefined, undefined), undefined);
  t.equal(firstProblem('no memory', 'no GPU memory'), 'no memory');
  t.match(
    firstProblem(undefined, 'it needs 20 GiB of GPU memory'),
    /^it needs 20 GiB of GPU memory; or set gpuLayers: /,
  );
  t.end();
});
