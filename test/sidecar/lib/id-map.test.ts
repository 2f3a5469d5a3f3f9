import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { IdMap } from '../../../sidecar/lib/id-map.js';
import { grownOld } from '../../support/grown-old.js';
import { rounds } from '../../support/long-form.js';

t.test('it equals a Map, in the order of its keys', async () => {
  const key = fc.nat({ max: 8 });
  const act = fc.oneof(
    fc.record({ kind: fc.constant('set' as const), key, value: fc.string() }),
    fc.record({ kind: fc.constantFrom('delete' as const, 'clear' as const), key }),
  );
  fc.assert(
    fc.property(fc.array(act, { maxLength: 60 }), (acts) => {
      const table = new IdMap<string>();
      const map = new Map<number, string>();
      for (const act of acts) {
        if (act.kind === 'set') {
          table.set(act.key, act.value);
          map.set(act.key, act.value);
        } else if (act.kind === 'clear' && act.key === 0) {
          table.clear();
          map.clear();
        } else assert.equal(table.delete(act.key), map.delete(act.key));
        assert.equal(table.size, map.size);
        for (let each = 0; each <= 8; each++) assert.equal(table.get(each), map.get(each));
        const sorted = [...map].sort(([a], [b]) => a - b).map(([, value]) => value);
        assert.deepEqual(table.values(), sorted);
      }
    }),
    { numRuns: rounds({ short: 15, long: 50 }) },
  );
});

t.test('removed entries are collected with the young generation', async (t) => {
  const table = new IdMap<readonly number[]>();
  const through = (count: number): void => {
    for (let i = 0; i < count; i++) {
      table.set(i, new Array<number>(250).fill(i));
      table.delete(i - 3);
    }
  };
  // Whatever is in the table now is old from here on.
  through(1000);
  // 40 MB in all. A Map would keep most of that until the next full collection.
  const old = await grownOld(() => through(20_000));
  t.ok(old < 2_000_000, `${old} bytes reached the old generation`);
});
