import fc from 'fast-check';
import t from 'tap';
import type { AccountClass } from '../../../sidecar/admission/accounts.js';
import { lastOfLongest } from '../../../sidecar/admission/make-room.js';
import { OrderedList, type QueuedRequest } from '../../../sidecar/admission/request.js';

interface Waiting {
  readonly user: string | undefined;
  readonly hasReservation: boolean;
}

function classOf(requests: readonly Waiting[], newestFirst: boolean): Pick<AccountClass, 'list' | 'newestFirst'> {
  const list = new OrderedList<QueuedRequest>();
  requests.forEach(({ user, hasReservation }, order) => {
    list.insert({ order, hasReservation, request: { user } } as unknown as QueuedRequest);
  });
  return { list, newestFirst };
}

const requests = fc.array(
  fc.record({
    user: fc.constantFrom(undefined, 'a', 'b', 'c'),
    hasReservation: fc.nat({ max: 9 }).map((one) => one === 0),
  }),
  { maxLength: 40, size: 'max' },
);

t.test('several that make room are those that would one after another', async () => {
  fc.assert(
    fc.property(requests, fc.boolean(), fc.nat({ max: 15 }), (all, newestFirst, count) => {
      const together = lastOfLongest(classOf(all, newestFirst), count).map(({ order }) => order);
      const single = classOf(all, newestFirst);
      const inTurn: number[] = [];
      while (inTurn.length < count) {
        const [one] = lastOfLongest(single, 1);
        if (one === undefined) break;
        inTurn.push(one.order);
        single.list.remove(one);
      }
      return together.sort((a, b) => a - b).join() === inTurn.sort((a, b) => a - b).join();
    }),
  );
});

t.test('none has a reservation, and a user with many loses its requests first', async (t) => {
  const many = Array.from({ length: 5 }, () => ({ user: 'a', hasReservation: false }));
  const one = { user: 'b', hasReservation: false };
  const kept = { user: 'a', hasReservation: true };
  const found = lastOfLongest(classOf([...many, kept, one], false), 3);
  t.strictSame(
    found.map(({ order }) => order),
    [4, 3, 2],
  );
  const users = ['a', 'a', 'b', 'c'].map((user) => ({ user, hasReservation: false }));
  const between = lastOfLongest(classOf(users, false), 2);
  t.strictSame(
    between.map(({ order }) => order),
    [1, 3],
  );
  const newest = lastOfLongest(classOf([one, ...many], true), 2);
  t.strictSame(
    newest.map(({ order }) => order),
    [1, 2],
  );
});
