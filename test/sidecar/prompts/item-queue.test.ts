import fc from 'fast-check';
import t from 'tap';
import { ItemQueue, type Item } from '../../../sidecar/prompts/item-queue.js';

function filled(width: number, ...jobs: string[]): { queue: ItemQueue<string>; items: Item<string>[] } {
  const queue = new ItemQueue<string>(width, 100);
  return { queue, items: jobs.map((job) => queue.add(job)!) };
}

function startAll(queue: ItemQueue<string>): string {
  const started: string[] = [];
  for (let item = queue.next(); item; item = queue.next()) started.push(item.job);
  return started.join('');
}

const jobs = (items: readonly Item<string>[]) => items.map(({ job }) => job).join('');

t.test('items run in their order, as many as there are workers', async (t) => {
  const { queue, items } = filled(2, 'a', 'b', 'c');
  t.equal(startAll(queue), 'ab');
  t.equal(queue.finish(items[1]!.id), items[1]);
  t.equal(queue.finish(items[1]!.id), undefined, 'only once');
  t.equal(startAll(queue), 'c');
  t.same([queue.running, queue.queued], [2, 0]);
});

t.test('one more than may wait is not taken', async (t) => {
  const queue = new ItemQueue<string>(1, 2);
  t.ok(queue.add('a'));
  t.ok(queue.next());
  t.ok(queue.add('b'));
  t.ok(queue.add('c'));
  t.equal(queue.add('d'), undefined);
});

t.test('who ran alone killed the host; those that wait are not touched', async (t) => {
  const { queue } = filled(1, 'a', 'b');
  startAll(queue);
  t.equal(jobs(queue.lost()), 'a');
  t.equal(startAll(queue), 'b');
});

t.test('of several that ran each is tried alone, before the others, and the guilty is found', async (t) => {
  const { queue, items } = filled(2, 'a', 'b', 'c', 'd');
  t.equal(startAll(queue), 'ab');
  t.equal(jobs(queue.lost()), '', 'nobody is blamed yet');
  t.equal(startAll(queue), 'a');
  queue.finish(items[0]!.id);
  t.equal(startAll(queue), 'b');
  t.equal(jobs(queue.lost()), 'b');
  t.equal(startAll(queue), 'cd');
});

t.test('a silent item is to blame, not those beside it', async (t) => {
  const { queue, items } = filled(3, 'a', 'b', 'c');
  startAll(queue);
  t.equal(jobs(queue.lost(items[1])), 'b');
  t.equal(startAll(queue), 'a');
  queue.finish(items[0]!.id);
  t.equal(startAll(queue), 'c');
});

t.test('an abandoned item is taken out, or counted as running until it ends, and never tried again', async (t) => {
  const { queue, items } = filled(1, 'a', 'b', 'c');
  startAll(queue);
  queue.abandon(items[1]!);
  queue.abandon(items[0]!);
  t.equal(startAll(queue), '', 'the worker is still at it');
  t.equal(jobs(queue.lost()), '', 'nobody waits to hear of it');
  t.equal(startAll(queue), 'c');
  const two = filled(2, 'a', 'b');
  startAll(two.queue);
  two.queue.abandon(two.items[0]!);
  two.queue.lost();
  t.equal(startAll(two.queue), 'b', 'and not a');
  t.equal(jobs(two.queue.clear()), 'b');
  t.same([two.queue.running, two.queue.queued], [0, 0]);
});

t.test('whatever happens, an item runs twice at most and only killers fail', async () => {
  fc.assert(
    fc.property(
      fc.nat({ max: 3 }),
      fc.nat({ max: 3 }),
      fc.array(fc.boolean(), { maxLength: 20 }),
      (more, ahead, killers) => {
        const queue = new ItemQueue<boolean>(more + 1, 100, ahead);
        const items = killers.map((kills) => queue.add(kills)!);
        const runs = new Map<number, number>();
        const failed: Item<boolean>[] = [];
        let answered = 0;
        for (let round = 0; queue.queued + queue.running > 0 && round < 1000; round++) {
          while (queue.next());
          const running = [...queue.runs()];
          for (const { id } of running) runs.set(id, (runs.get(id) ?? 0) + 1);
          if (running.some(({ job }) => job)) failed.push(...queue.lost());
          else for (const { id } of running) if (queue.finish(id)) answered++;
        }
        return (
          failed.every(({ job }) => job) &&
          failed.length + answered === items.length &&
          [...runs.values()].every((count) => count <= 2)
        );
      },
    ),
  );
});

t.test('those sent ahead are not suspected, and go first to the next host', async (t) => {
  const queue = new ItemQueue<string>(1, 100, 2);
  const items = ['a', 'b', 'c', 'd', 'e'].map((job) => queue.add(job)!);
  t.equal(startAll(queue), 'abc');
  t.same([queue.running, queue.queued, jobs([...queue.runs()])], [1, 2, 'a']);
  queue.finish(items[0]!.id);
  t.equal(startAll(queue), 'd');
  queue.abandon(items[3]!);
  t.equal(jobs(queue.lost()), 'b');
  t.equal(startAll(queue), 'ce');
});
