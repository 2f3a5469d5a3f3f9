import fc from 'fast-check';
import t from 'tap';
import { BIN_ENDS, binOf, Survival } from '../../../sidecar/admission/survival.js';

const HALF_MS = 15_000;
const NOTHING_BELIEVED = { callers: 0, hazardOf: undefined };

function fitted(seen: readonly { readonly ms: number; readonly left: boolean }[]): Survival {
  const survival = new Survival();
  for (const each of seen) survival.observe(0, HALF_MS, each);
  survival.fit(0, HALF_MS, NOTHING_BELIEVED);
  return survival;
}

t.test('a time belongs to the bin that ends after it', async (t) => {
  fc.assert(
    fc.property(fc.double({ min: 0, max: 500_000, noNaN: true }), (ms) => {
      const bin = binOf(ms);
      const from = bin === 0 ? 0 : (BIN_ENDS[bin - 1] ?? 0);
      const to = BIN_ENDS[bin] ?? 0;
      return from <= ms * (1 + 1e-9) && ms < to * (1 + 1e-9);
    }),
  );
  t.end();
});

t.test('without served callers the share still there is the share that has not left', async (t) => {
  const seen = [1000, 1000, 4000, 16_000].map((ms) => ({ ms, left: true }));
  const survival = fitted(seen);
  t.equal(survival.after(900), 1, 'no caller has left yet');
  for (const [ms, share] of [
    [1500, 0.5],
    [6000, 0.25],
    [30_000, 0],
  ] as const) {
    t.ok(Math.abs(survival.after(ms) - share) < 1e-6, `after ${ms} ms`);
  }
});

t.test('a served caller counts as there until then, and not as one that left', async (t) => {
  const left = { ms: 4000, left: true };
  const served = { ms: 1000, left: false };
  // Two of four were served before any left, so of the two at risk one leaves: Kaplan and Meier’s 1/2, not 1/4.
  const survival = fitted([served, served, left, { ms: 16_000, left: true }]);
  t.ok(Math.abs(survival.after(6000) - 0.5) < 1e-6);
  t.equal(fitted([served, served]).timeOf(0.5), undefined, 'if no caller left, nothing is known');
});

t.test('chances only fall with time, whatever was observed', async (t) => {
  const seen = fc.array(fc.record({ ms: fc.integer({ min: 0, max: 600_000 }), left: fc.boolean() }), { maxLength: 50 });
  fc.assert(
    fc.property(seen, (list) => {
      const survival = fitted(list);
      const shares = BIN_ENDS.map((ms) => survival.after(ms));
      return shares.every((share, i) => share >= -1e-9 && share <= (shares[i - 1] ?? 1) + 1e-9);
    }),
  );
  t.end();
});

t.test('observations lose half their weight in each half life, and later callers outweigh them', async (t) => {
  const survival = new Survival();
  for (let i = 0; i < 8; i++) survival.observe(0, HALF_MS, { ms: 1000, left: true });
  t.ok(Math.abs(survival.count(3 * HALF_MS, HALF_MS) - 1) < 1e-6, 'eight count as one after three half lives');
  const now = 20 * HALF_MS;
  for (let i = 0; i < 8; i++) survival.observe(now, HALF_MS, { ms: 16_000, left: true });
  survival.fit(now, HALF_MS, NOTHING_BELIEVED);
  t.ok(survival.after(6000) > 0.99);
  t.ok(Number.isFinite(survival.count(now + 1e9, HALF_MS)), 'weights stay bounded');
});
