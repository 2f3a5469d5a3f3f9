import t from 'tap';
import { IdleWatch } from '../../../sidecar/engine-client/idle-watch.js';
import { FakeClock } from '../../support/fake-clock.js';

const IDLE_MS = 800;
const LOOK_MS = IDLE_MS / 8;

function setup(busy: () => boolean = () => false): { clock: FakeClock; watch: IdleWatch; idle: number[] } {
  const clock = new FakeClock();
  const idle: number[] = [];
  const watch = new IdleWatch(clock, IDLE_MS, busy, () => idle.push(clock.now()));
  return { clock, watch, idle };
}

t.test('idle: called back once, on time', (t) => {
  const { clock, idle } = setup();
  clock.advance(IDLE_MS - 1);
  t.same(idle, []);
  clock.advance(10 * IDLE_MS);
  t.same(idle, [IDLE_MS]);
  t.equal(clock.pending, 0);
  t.end();
});

t.test('a job between two checks counts', (t) => {
  const { clock, watch, idle } = setup();
  clock.advance(IDLE_MS - 10);
  watch.touch();
  clock.advance(IDLE_MS - 1);
  t.same(idle, []);
  clock.advance(LOOK_MS);
  t.equal(idle.length, 1);
  t.end();
});

t.test('a job or a request counts until its end, however long', (t) => {
  let busy = true;
  const { clock, idle } = setup(() => busy);
  clock.advance(20 * IDLE_MS);
  t.same(idle, []);
  busy = false;
  clock.advance(IDLE_MS - LOOK_MS - 1);
  t.same(idle, []);
  clock.advance(LOOK_MS + 1);
  t.equal(idle.length, 1);
  t.end();
});

t.test('after stop there is no callback', (t) => {
  const { clock, watch, idle } = setup();
  watch.stop();
  clock.advance(10 * IDLE_MS);
  t.same(idle, []);
  t.equal(clock.pending, 0);
  t.end();
});
