import t from 'tap';
import { Closers, PART_MS, StartEnded } from '../../../sidecar/app/closers.js';
import { FakeClock } from '../../support/fake-clock.js';
import { RecordingLog } from '../../support/in-process.js';

function stack(): {
  closers: Closers;
  clock: FakeClock;
  log: RecordingLog;
  closed: string[];
  open: (name: string) => void;
} {
  const [clock, log] = [new FakeClock(), new RecordingLog()];
  const closers = new Closers(clock, log);
  const closed: string[] = [];
  return { closers, clock, log, closed, open: (name) => closers.add({ name, close: () => void closed.push(name) }) };
}

t.test('parts are closed one after another, the last one first, each once, though some fail', async (t) => {
  const { closers, clock, log, closed, open } = stack();
  open('first');
  closers.add({
    name: 'throws',
    close: () => {
      throw new Error('a fault');
    },
  });
  let settle = (): void => undefined;
  closers.add({ name: 'slow', close: () => new Promise<void>((done) => (settle = done)) });
  closers.add({ name: 'rejects', close: () => Promise.reject(new Error('a fault')) });
  open('last');
  const both = Promise.all([closers.close(), closers.close()]);
  await new Promise(setImmediate);
  t.strictSame(closed, ['last'], 'the others wait for the slow one');
  settle();
  await both;
  await closers.close();
  t.strictSame(closed, ['last', 'first']);
  t.match(log.lines, [
    { event: 'part not closed', reason: 'rejects' },
    { event: 'part not closed', reason: 'throws' },
  ]);
  t.equal(clock.pending, 0);
});

t.test('a part that was raised is closed before those that were added since', async (t) => {
  const { closers, closed, open } = stack();
  const early = { name: 'early', close: () => closed.push('early') };
  closers.add(early);
  open('used by it');
  closers.raise(early);
  open('last');
  await closers.close();
  t.strictSame(closed, ['last', 'early', 'used by it']);
  t.throws(() => closers.raise(early), StartEnded);
});

t.test('a part that does not end within its bound is left, and reported', async (t) => {
  const { closers, clock, log, closed, open } = stack();
  const hangs = (): Promise<void> => new Promise(() => undefined);
  open('first');
  closers.add({ name: 'usual', close: hangs });
  closers.add({ name: 'own', close: hangs, withinMs: 5, timedOut: () => closed.push('own is late') });
  const ended = closers.close();
  for (const ms of [5, PART_MS]) {
    await new Promise(setImmediate);
    clock.advance(ms);
  }
  await ended;
  t.strictSame(closed, ['own is late', 'first']);
  t.match(log.lines, [{ event: 'part not closed in time', reason: 'usual' }]);
});

t.test('a part that opens while or after the others are closed is closed, and its start ends', async (t) => {
  const { closers, closed, open } = stack();
  open('first');
  let settle = (): void => undefined;
  closers.add({ name: 'slow', close: () => new Promise<void>((done) => (settle = done)) });
  const ended = closers.close();
  t.throws(() => open('meanwhile'), StartEnded);
  settle();
  await ended;
  t.strictSame(closed, ['meanwhile', 'first']);
  t.throws(() => open('afterwards'), StartEnded);
  await closers.close();
  t.strictSame(closed, ['meanwhile', 'first', 'afterwards']);
});
