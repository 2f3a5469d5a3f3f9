import t from 'tap';
import { FirstStarts } from '../../../sidecar/app/first-starts.js';

function three(): { starts: FirstStarts; ends: string[] } {
  const ends: string[] = [];
  const starts = new FirstStarts(3, { up: () => ends.push('up'), never: (why) => ends.push(why) });
  return { starts, ends };
}

t.test('a model is up once each replica is ready', async (t) => {
  const { starts, ends } = three();
  starts.ready(2);
  starts.ready(0);
  starts.ready(0);
  t.strictSame(ends, []);
  starts.ready(1);
  starts.ready(1);
  starts.lost(1, 'later', true);
  t.strictSame(ends, ['up'], 'once');
});

t.test('a replica whose starts crash is left out while another serves', async (t) => {
  const { starts, ends } = three();
  starts.lost(0, 'crashed', false);
  starts.ready(1);
  starts.lost(2, 'crashed too', false);
  t.strictSame(ends, ['up']);
});

t.test('one whose settings are wrong ends the start', async (t) => {
  const { starts, ends } = three();
  starts.ready(0);
  starts.lost(1, 'too small', true);
  t.strictSame(ends, ['too small']);
});

t.test('the start ends when all of them crash', async (t) => {
  const { starts, ends } = three();
  for (const replica of [0, 1, 2]) starts.lost(replica, `crash ${replica}`, false);
  t.strictSame(ends, ['crash 2']);
});
