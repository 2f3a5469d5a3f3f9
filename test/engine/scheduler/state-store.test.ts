import t from 'tap';
import type { Checkpoint } from '../../../engine/scheduler/decoder.js';
import { Checkpoints, checkpointStore, SavedCheckpoint } from '../../../engine/scheduler/state-store.js';

const TOKENS = Uint32Array.from({ length: 1000 }, (_, i) => i);

/** A checkpoint, and whether it was disposed. */
interface Made extends Checkpoint {
  disposed: number;
}

const made = (length: number, bytes = 10): Made => ({
  length,
  bytes,
  disposed: 0,
  dispose() {
    this.disposed += 1;
  },
});

const saved = (checkpoint: Checkpoint, gain = 100): SavedCheckpoint => new SavedCheckpoint(checkpoint, TOKENS, gain);

t.test('the bytes never exceed the bound, and the checkpoint of least value is removed', async (t) => {
  const store = checkpointStore(30);
  const states = new Checkpoints(store);
  const [little, much, middling] = [made(10), made(200), made(300)];
  states.add(saved(little, 10));
  states.add(saved(much, 500));
  states.add(saved(middling, 100));
  t.equal(store.bytes, 30);
  states.add(saved(made(400), 1000));
  t.same([little.disposed, much.disposed, middling.disposed], [1, 0, 0]);
  t.same(states.lengths, [200, 300, 400]);
  for (let i = 0; i < 50; i++) store.used(states.at(300) ?? saved(middling));
  states.add(saved(made(500)));
  t.same([much.disposed, middling.disposed], [1, 0], 'long unused');
  t.equal(store.bytes, 30);
  const large = made(600, 31);
  states.add(saved(large));
  t.same([large.disposed, states.lengths.includes(600)], [1, false], 'larger than all that may be');
});

t.test('a checkpoint of several sequences is freed with the last of them, once', async (t) => {
  const store = checkpointStore(100);
  const [a, b] = [new Checkpoints(store), new Checkpoints(store)];
  const [short, long] = [made(10), made(20)];
  a.add(saved(short));
  a.add(saved(long));
  b.become(a);
  t.equal(store.bytes, 20, 'counted once');
  a.truncate(10);
  t.same([a.lengths, b.lengths, long.disposed], [[10], [10, 20], 0]);
  b.truncate(0);
  t.same([b.lengths, short.disposed, long.disposed], [[], 0, 1]);
  a.truncate(0);
  t.same([short.disposed, store.bytes], [1, 0]);
});

t.test('a checkpoint of other tokens is not restored', async (t) => {
  const store = checkpointStore(100);
  const state = saved(made(10));
  new Checkpoints(store).add(state);
  t.doesNotThrow(() => state.check(TOKENS));
  t.throws(() => state.check(TOKENS.subarray(0, 9)), 'too short');
  t.throws(() => state.check(TOKENS.map((token) => token + 1)), 'other tokens');
  store.drop(state, 'room');
  t.throws(() => state.check(TOKENS), 'evicted');
});
