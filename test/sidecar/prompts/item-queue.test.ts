import fc from 'fast-check';
import t from 'tap';
import type { Item } from '../../../sidecar/lib/fair-share.js';
import { ItemQueue } from '../../../sidecar/prompts/item-queue.js';

/** Adds an item to a queue that is not full. */
function add<T>(queue: ItemQueue<T>, call: T, account = 'a', compiles = false): Item<T> {
  const added = queue.add(call, { account, weight: 1 }, compiles);
  if (added.kind === 'full') throw new Error('full');
  return added.item;
}

function filled(width: number, ...calls: string[]): { queue: ItemQueue<string>; items: Item<string>[] } {
  const queue = new ItemQueue<string>(width, 100, 0);
  return { queue, items: calls.map((call) => add(queue, call)) };
}

/** The host ends after so many ms. Returns the call that fails for it. */
function lost<T>(queue: ItemQueue<T>, hung?: Item<T>, ms = 0): T | undefined {
  const blamed = queue.lost(() => ms, hung);
  return blamed?.abandoned === false ? blamed.task : undefined;
}

function startAll(queue: ItemQueue<string>): string {
  const started: string[] = [];
  for (let item = queue.next(); item; item = queue.next()) started.push(item.task);
  return started.join('');
}

const calls = (items: readonly Item<string>[]) => items.map(({ task }) => task).join('');

t.test('items run in their order, as many as there are workers', async (t) => {
  const { queue, items } = filled(2, 'a', 'b', 'c');
  t.equal(startAll(queue), 'ab');
  t.equal(queue.finish(items[1]!.id, 1), items[1]);
  t.equal(queue.finish(items[1]!.id, 1), undefined, 'only once');
  t.equal(startAll(queue), 'c');
  t.same([queue.running, queue.queued], [2, 0]);
});

t.test('one more than the maximum of waiting items is not added', async (t) => {
  const queue = new ItemQueue<string>(1, 2, 0);
  const kind = (call: string): string => queue.add(call, { account: 'a', weight: 1 }).kind;
  t.equal(kind('a'), 'added');
  t.ok(queue.next());
  t.same([kind('b'), kind('c'), kind('d')], ['added', 'added', 'full']);
});

t.test('an item that ran alone ended the host; waiting ones are not affected', async (t) => {
  const { queue } = filled(1, 'a', 'b');
  startAll(queue);
  t.equal(lost(queue), 'a');
  t.equal(startAll(queue), 'b');
});

t.test('of several that ran each is retried alone, before the others, and the cause is found', async (t) => {
  const { queue, items } = filled(2, 'a', 'b', 'c', 'd');
  t.equal(startAll(queue), 'ab');
  t.equal(lost(queue), undefined, 'none is the cause yet');
  t.equal(startAll(queue), 'a');
  queue.finish(items[0]!.id, 1);
  t.equal(startAll(queue), 'b');
  t.equal(lost(queue), 'b');
  t.equal(startAll(queue), 'cd');
});

t.test('an item that hung is the cause, not those beside it', async (t) => {
  const { queue, items } = filled(3, 'a', 'b', 'c');
  startAll(queue);
  t.equal(lost(queue, items[1]), 'b');
  t.equal(startAll(queue), 'a');
  queue.finish(items[0]!.id, 1);
  t.equal(startAll(queue), 'c');
});

t.test('a cancelled item is removed, or counts as running until it ends, and is never retried', async (t) => {
  const { queue, items } = filled(1, 'a', 'b', 'c');
  startAll(queue);
  queue.abandon(items[1]!);
  queue.abandon(items[0]!);
  t.equal(startAll(queue), '', 'the worker still runs it');
  t.equal(lost(queue), undefined, 'no caller waits for it');
  t.equal(startAll(queue), 'c');
  const two = filled(2, 'a', 'b');
  startAll(two.queue);
  two.queue.abandon(two.items[0]!);
  lost(two.queue);
  t.equal(startAll(two.queue), 'b', 'and not a');
  t.equal(calls(two.queue.clear()), 'b');
  t.same([two.queue.running, two.queue.queued], [0, 0]);
});

t.test('whatever happens, an item runs at most twice and only those that end a host fail', async () => {
  fc.assert(
    fc.property(
      fc.nat({ max: 3 }),
      fc.nat({ max: 3 }),
      fc.array(fc.boolean(), { maxLength: 20 }),
      (more, ahead, killers) => {
        const queue = new ItemQueue<boolean>(more + 1, 100, ahead);
        const items = killers.map((kills, i) => add(queue, kills, `${i % 3}`, i % 5 === 0));
        const runs = new Map<number, number>();
        const failed: Item<boolean>[] = [];
        let answered = 0;
        for (let round = 0; queue.queued + queue.running > 0 && round < 1000; round++) {
          while (queue.next());
          const running = [...queue.runs()];
          for (const { id } of running) runs.set(id, (runs.get(id) ?? 0) + 1);
          if (running.some(({ task }) => task))
            failed.push(...[queue.lost(() => 1)].filter((item) => item !== undefined));
          else for (const { id } of running) if (queue.finish(id, 1)) answered++;
        }
        return (
          failed.every(({ task }) => task) &&
          failed.length + answered === items.length &&
          [...runs.values()].every((count) => count <= 2)
        );
      },
    ),
  );
});

t.test('items that were sent ahead are no suspects, and go first to the next host', async (t) => {
  // Three, of the half a millisecond that an account’s items are expected to cost at first.
  const queue = new ItemQueue<string>(1, 100, 1.5);
  const items = ['a', 'b', 'c', 'd', 'e'].map((call) => add(queue, call));
  t.equal(startAll(queue), 'abc');
  t.same([queue.running, queue.queued, calls([...queue.runs()])], [1, 2, 'a']);
  queue.finish(items[0]!.id, 0.5);
  t.equal(startAll(queue), 'd');
  queue.abandon(items[3]!);
  t.equal(lost(queue), 'b');
  t.equal(startAll(queue), 'ce');
});

t.test('how many are sent ahead depends on the cost of the account’s items', async (t) => {
  const queue = new ItemQueue<string>(1, 100, 2);
  const first = add(queue, 'a');
  for (const call of ['b', 'c', 'd', 'e', 'f', 'g']) add(queue, call);
  t.equal(startAll(queue), 'abcd', 'half a millisecond each');
  queue.finish(first.id, 20);
  for (const item of queue.runs()) t.equal(item.task, 'b');
  queue.finish(first.id + 1, 20);
  queue.finish(first.id + 2, 20);
  t.equal(startAll(queue), '', 'none beside one that runs');
  queue.finish(first.id + 3, 20);
  t.equal(startAll(queue), 'e');
});

t.test('a full queue drops the newest item of the account with the most waiting', async (t) => {
  const queue = new ItemQueue<string>(1, 4, 0);
  for (const call of ['a1', 'a2', 'a3', 'a4']) add(queue, call, 'a');
  const outcome = (call: string, account: string): string => {
    const added = queue.add(call, { account, weight: 1 });
    return added.kind === 'full' ? 'full' : `dropped ${added.dropped?.task}`;
  };
  t.equal(outcome('a5', 'a'), 'full');
  t.equal(outcome('b1', 'b'), 'dropped a4');
  t.equal(outcome('b2', 'b'), 'dropped a3');
  t.equal(outcome('b3', 'b'), 'full', 'both have as many');
  t.equal(outcome('c1', 'c'), 'dropped a2', 'of the first of them');
});

t.test('an item that was sent and has not begun may be taken back', async (t) => {
  const queue = new ItemQueue<string>(1, 100, 1.5);
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((call) => add(queue, call));
  if (!a || !b || !c || !d) throw new Error('no items');
  t.equal(startAll(queue), 'abc');
  t.notOk(queue.abandon(a), 'it runs');
  t.ok(queue.abandon(b));
  t.notOk(queue.abandon(b), 'once');
  t.notOk(queue.abandon(d), 'it was never sent');
  t.equal(queue.finish(b.id, undefined), b);
  t.equal(queue.finish(a.id, 1), a);
  t.equal(calls([...queue.runs()]), 'c');
});

t.test('an account whose item ended a host is charged for it: others go first', async (t) => {
  const queue = new ItemQueue<string>(1, 100, 0);
  for (const call of ['k1', 'k2', 'k3']) add(queue, call, 'killer');
  t.equal(startAll(queue), 'k1');
  for (let i = 0; i < 5; i++) add(queue, `o${i}`, 'other');
  t.equal(lost(queue, undefined, 2000), 'k1');
  queue.charge({ account: 'killer', weight: 1 }, 500);
  let order = '';
  for (let item = queue.next(); item; item = queue.next()) {
    order += `${item.task} `;
    queue.finish(item.id, 1);
  }
  t.equal(order, 'o0 o1 o2 o3 o4 k2 k3 ');
});

t.test('items that compile run one at a time, and delay no others', async (t) => {
  const queue = new ItemQueue<string>(1, 100, 0);
  const [first, second] = ['c1', 'c2'].map((call) => add(queue, call, 'expensive', true));
  const items = ['a', 'b'].map((call) => add(queue, call, 'quick'));
  if (!first || !second) throw new Error('no items');
  t.equal(startAll(queue), 'c1a');
  t.equal(new Set([first, second, ...items].map(({ id }) => id)).size, 4, 'ids are of both kinds');
  queue.finish(items[0]!.id, 1);
  t.equal(startAll(queue), 'b', 'and not the second that compiles');
  t.same([queue.running, queue.queued, calls([...queue.runs()])], [2, 1, 'bc1']);
  queue.abandon(first);
  t.equal(startAll(queue), '', 'the compiler is still running');
  t.equal(queue.finish(first.id, 20), first);
  t.equal(startAll(queue), 'c2');
});

t.test('an item that compiles is suspected like others, and retried alone', async (t) => {
  const queue = new ItemQueue<string>(1, 100, 0);
  const compiled = add(queue, 'c', 'expensive', true);
  const items = ['a', 'b'].map((call) => add(queue, call));
  t.equal(startAll(queue), 'ca');
  t.equal(lost(queue), undefined, 'either may have ended the host');
  t.equal(startAll(queue), 'a');
  queue.finish(items[0]!.id, 1);
  t.equal(startAll(queue), 'c', 'without b');
  queue.finish(compiled.id, 20);
  t.equal(startAll(queue), 'b');
  const last = add(queue, 'd', 'expensive', true);
  queue.finish(items[1]!.id, 1);
  t.equal(startAll(queue), 'd');
  t.equal(lost(queue), 'd', 'it ran alone');
  t.same([queue.running, queue.queued, last.abandoned], [0, 0, false]);
});
