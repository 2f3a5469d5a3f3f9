import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import t from 'tap';
import { AccountColumns } from '../../../sidecar/admission/account-columns.js';
import { Account } from '../../../sidecar/admission/account.js';

/** Operations on accounts, with a number that selects one of them. */
const steps = fc.array(
  fc.record({ what: fc.constantFrom('make', 'forget', 'wait', 'leave', 'end'), which: fc.nat(1000) }),
  { maxLength: 600, size: 'max' },
);

t.test('columns keep each account’s numbers while others are added, grow the columns and are removed', async () => {
  fc.assert(
    fc.property(steps, (list) => {
      const columns = new AccountColumns();
      const known: { readonly account: Account; waiting: number; hold: number | undefined }[] = [];
      const make = (): void => {
        known.push({ account: new Account('any', columns), waiting: 0, hold: undefined });
      };
      for (let i = 0; i < 60; i += 1) make();
      for (const { what, which } of list) {
        const each = known[which % Math.max(1, known.length)];
        if (what === 'make' || each === undefined) make();
        else if (what === 'forget' && each.waiting === 0) {
          columns.release(each.account.slot);
          known.splice(known.indexOf(each), 1);
        } else if (what === 'wait' || (what === 'leave' && each.waiting > 0)) {
          each.waiting += what === 'wait' ? 1 : -1;
          each.account.waiting = each.waiting;
          columns.setActive(each.account.slot, each.waiting > 0);
        } else if (what === 'end') {
          each.account.observeHold(which);
          each.hold = each.account.holdMs;
        }
      }
      const wanted = known.filter(({ waiting }) => waiting > 0).map(({ account }) => account.slot);
      const listed = [...columns.active.subarray(0, columns.activeCount)];
      const same = (a: number[], b: number[]): boolean => isDeepStrictEqual(a.sort(), b.sort());
      return (
        same(listed, wanted) &&
        known.every(({ account, waiting, hold }) => {
          const column = columns.holdMs[account.slot];
          return account.waiting === waiting && account.holdMs === hold && Object.is(column, hold ?? NaN);
        })
      );
    }),
    { numRuns: 200 },
  );
});
