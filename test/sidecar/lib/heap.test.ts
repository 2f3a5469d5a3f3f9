import fc from 'fast-check';
import t from 'tap';
import { Heap, HeapNode } from '../../../sidecar/lib/heap.js';
import { rounds } from '../../support/long-form.js';

interface Member {
  rank: number;
  readonly node: HeapNode<Member>;
}

function member(rank: number): Member {
  const made: { rank: number; node?: HeapNode<Member> } = { rank };
  return Object.assign(made, { node: new HeapNode<Member>(made as Member) });
}

t.test('after any operations the first is the lowest', async () => {
  const move = fc.tuple(fc.nat({ max: 15 }), fc.nat({ max: 99 }), fc.boolean());
  fc.assert(
    fc.property(fc.array(move, { maxLength: 200, size: 'max' }), (moves) => {
      const heap = new Heap<Member>((a, b) => a.rank < b.rank);
      const model = new Map<number, Member>();
      for (const [who, rank, goes] of moves) {
        const found = model.get(who);
        if (found === undefined) {
          const fresh = member(rank);
          model.set(who, fresh);
          heap.add(fresh.node);
        } else if (goes) {
          model.delete(who);
          heap.remove(found.node);
          heap.remove(found.node);
        } else {
          const later = rank >= found.rank;
          found.rank = rank;
          if (later) heap.movedBack(found.node);
          else heap.moved(found.node);
        }
        check(heap, [...model.values()]);
      }
    }),
    { numRuns: rounds({ short: 30, long: 500 }) },
  );
});

function check(heap: Heap<Member>, members: readonly Member[]): void {
  const ranks = (found: Iterable<Member>): string =>
    Array.from(found, ({ rank }) => rank)
      .sort()
      .join();
  if (heap.size !== members.length || ranks(heap) !== ranks(members)) throw new Error('other members');
  const lowest = (of: readonly Member[]): number | undefined =>
    of.length ? Math.min(...of.map((m) => m.rank)) : undefined;
  if (heap.first?.rank !== lowest(members)) throw new Error('not the lowest first');
  const front = heap.front(3);
  if (front.length !== Math.min(3, members.length) || (front.length > 0 && front[0]?.rank !== lowest(members)))
    throw new Error('not the first three');
}

t.test('a node that is in no heap is not affected', async (t) => {
  const heap = new Heap<Member>((a, b) => a.rank < b.rank);
  const { node } = member(1);
  heap.remove(node);
  heap.moved(node);
  heap.movedBack(node);
  t.equal(heap.size, 0);
});
