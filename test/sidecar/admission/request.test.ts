import fc from 'fast-check';
import t from 'tap';
import { OrderedList, type ListMember } from '../../../sidecar/admission/request.js';
import { rounds } from '../../support/long-form.js';

class Member implements ListMember<Member> {
  list: OrderedList<Member> | undefined;
  prev: Member | undefined;
  next: Member | undefined;
  constructor(readonly order: number) {}
}

function orders(list: OrderedList<Member>): number[] {
  const found: number[] = [];
  for (let member = list.first; member !== undefined; member = member.next) found.push(member.order);
  return found;
}

t.test('it equals a sorted list after any additions and removals', async () => {
  const orderArb = fc.nat({ max: 20 });
  fc.assert(
    fc.property(fc.array(orderArb), (moves) => {
      const list = new OrderedList<Member>();
      const model = new Map<number, Member>();
      for (const order of moves) {
        const member = model.get(order);
        if (member === undefined) {
          const fresh = new Member(order);
          model.set(order, fresh);
          list.insert(fresh);
        } else {
          model.delete(order);
          list.remove(member);
          list.remove(member);
        }
        const expected = [...model.keys()].sort((a, b) => a - b);
        if (list.length !== expected.length || String(orders(list)) !== String(expected)) return false;
      }
      return true;
    }),
    { numRuns: rounds({ short: 30, long: 500 }) },
  );
});

t.test('a member of another list is not affected', async (t) => {
  const [a, b] = [new OrderedList<Member>(), new OrderedList<Member>()];
  const member = new Member(1);
  a.insert(member);
  b.remove(member);
  t.same([a.length, b.length], [1, 0]);
  t.equal(a.first, member);
});
