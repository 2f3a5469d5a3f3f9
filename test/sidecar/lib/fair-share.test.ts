import fc from 'fast-check';
import t from 'tap';
import { FairShare } from '../../../sidecar/lib/fair-share.js';
import { FakeClock } from '../../support/fake-clock.js';
import { rounds } from '../../support/long-form.js';

const ONE = 1;

/** A host on a fake clock with one worker; a call’s number is its duration in ms. */
class Harness {
  readonly clock = new FakeClock();
  readonly queue = new FairShare<{ readonly ms: number; readonly name: string }>();
  /** Host time by account, in ms. */
  readonly spent = new Map<string, number>();
  /** Finished items, in order. */
  readonly done: { readonly name: string; readonly at: number }[] = [];

  add(account: string, ms: number, { weight = ONE, name = account } = {}): void {
    this.queue.add({ ms, name }, { account, weight });
  }

  /** Runs one item. False: none waits. */
  step(): boolean {
    const item = this.queue.take();
    if (!item) return false;
    this.clock.advance(item.task.ms);
    const { account } = item.owner;
    this.spent.set(account, (this.spent.get(account) ?? 0) + item.task.ms);
    this.done.push({ name: item.task.name, at: this.clock.now() });
    this.queue.done(item, item.task.ms);
    return true;
  }
}

t.test('items of one account run in their order', async (t) => {
  const harness = new Harness();
  for (const name of ['a', 'b', 'c']) harness.add('one', 5, { name });
  while (harness.step());
  t.equal(harness.done.map(({ name }) => name).join(''), 'abc');
});

t.test(
  'an account’s single prompt waits only for the running item, however many of another account wait',
  async (t) => {
    const harness = new Harness();
    for (let i = 0; i < 200; i++) harness.add('flood', 20);
    for (let i = 0; i < 5; i++) harness.step();
    for (let round = 0; round < 20; round++) {
      const from = harness.clock.now();
      harness.add('visitor', 0.2, { name: `visit ${round}` });
      // The other account’s item that runs when the prompt arrives.
      harness.step();
      if (harness.done.at(-1)?.name !== `visit ${round}`) harness.step();
      t.equal(harness.done.at(-1)?.name, `visit ${round}`);
      t.ok(harness.clock.now() - from <= 20.2);
    }
  },
);

t.test('an account that was idle has saved nothing', async (t) => {
  const harness = new Harness();
  for (let i = 0; i < 100; i++) harness.add('busy', 10);
  harness.add('away', 1);
  for (let i = 0; i < 50; i++) harness.step();
  const before = harness.spent.get('busy') ?? 0;
  for (let i = 0; i < 100; i++) harness.add('away', 10);
  for (let i = 0; i < 20; i++) harness.step();
  const since = (harness.spent.get('busy') ?? 0) - before;
  t.ok(since >= 80 && since <= 120, `${since} of 200 ms`);
});

t.test('host time is shared by weight, whatever an item costs', async () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ weight: fc.constantFrom(1, 4, 16), ms: fc.integer({ min: 1, max: 50 }) }), {
        minLength: 2,
        maxLength: 5,
      }),
      fc.integer({ min: 0, max: 1000 }),
      (accounts, seed) => {
        const harness = new Harness();
        // Items of one account cost between half of its maximum and all of it.
        const cost = (ms: number, i: number): number => ms * (1 + ((seed + i * 7919) % 100) / 100);
        for (const [i, { weight, ms }] of accounts.entries())
          for (let n = 0; n < 400; n++) harness.add(`${i}`, cost(ms, n), { weight });
        const total = new Map(accounts.map((_, i) => [`${i}`, 400]));
        for (let steps = 0; steps < 200; steps++) {
          harness.step();
          const name = harness.done.at(-1)?.name ?? '';
          total.set(name, (total.get(name) ?? 0) - 1);
        }
        if ([...total.values()].some((left) => left <= 0)) return;
        // The bound of start-time fair queuing: two of the longest items of each.
        const shares = accounts.map(({ weight }, i) => (harness.spent.get(`${i}`) ?? 0) / weight);
        for (const [i, a] of accounts.entries())
          for (const [j, b] of accounts.entries()) {
            const apart = Math.abs((shares[i] ?? 0) - (shares[j] ?? 0));
            const most = 2 * ((2 * a.ms) / a.weight + (2 * b.ms) / b.weight);
            if (apart > most) throw new Error(`${apart} ms apart, beside ${most}`);
          }
      },
    ),
    { numRuns: rounds({ short: 20, long: 200 }) },
  );
});

t.test('items that are put back or removed cost nothing', async (t) => {
  const harness = new Harness();
  harness.add('a', 100, { name: 'a1' });
  harness.add('b', 1, { name: 'b1' });
  const taken = harness.queue.take();
  if (!taken) throw new Error('none');
  harness.queue.putBack(taken);
  const removed = harness.queue.add({ ms: 1, name: 'a2' }, { account: 'a', weight: 1 });
  harness.queue.remove(removed);
  harness.queue.remove(removed);
  t.equal(harness.queue.size, 2);
  while (harness.step());
  t.equal(harness.done.map(({ name }) => name).join(' '), 'a1 b1');
});

t.test('accounts are remembered no longer than they are ahead of others', async (t) => {
  const harness = new Harness();
  for (let i = 0; i < 1000; i++) {
    harness.add('steady', 10);
    harness.add(`passing ${i}`, 1);
    harness.step();
    harness.step();
  }
  t.ok(harness.queue.accounts < 20, `${harness.queue.accounts} accounts`);
  while (harness.step());
  t.equal(harness.queue.accounts, 0);
});
