import t from 'tap';
import { FirstStarts } from '../../../sidecar/app/readiness.js';

t.test('a model is up once each replica is ready', async (t) => {
  const starts = new FirstStarts(3);
  let ended = false;
  void starts.ended.then(() => (ended = true));
  starts.ready(2);
  starts.ready(0);
  starts.ready(0);
  await new Promise(setImmediate);
  t.notOk(ended);
  starts.ready(1);
  starts.lost(1, 'later', true);
  t.equal(await starts.ended, undefined);
});

t.test('a replica whose starts crash is left out while another serves', async (t) => {
  const starts = new FirstStarts(3);
  starts.lost(0, 'crashed', false);
  starts.ready(1);
  starts.lost(2, 'crashed too', false);
  t.equal(await starts.ended, undefined);
});

t.test('one whose settings are wrong ends the start', async (t) => {
  const starts = new FirstStarts(3);
  starts.ready(0);
  starts.lost(1, 'too small', true);
  t.equal(await starts.ended, 'too small');
});

t.test('the start ends when all of them crash', async (t) => {
  const starts = new FirstStarts(3);
  for (const replica of [0, 1, 2]) starts.lost(replica, `crash ${replica}`, false);
  t.equal(await starts.ended, 'crash 2');
});
