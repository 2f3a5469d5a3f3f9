import t from 'tap';
import { newsOf } from '../../../sidecar/app/compose-spool.js';

t.test('a removed file is counted once, also one that is restored later', async (t) => {
  const isNews = newsOf();
  const removed = (segment: number, outcome: 'restored' | 'pending' | 'lost' | 'cut'): boolean =>
    isNews({ what: 'segment', segment, bytes: 1, outcome });
  t.ok(isNews({ what: 'lock' }));
  t.ok(removed(1, 'pending'));
  t.ok(removed(2, 'lost'));
  t.notOk(removed(1, 'restored'));
  t.ok(removed(1, 'restored'), 'it is removed again');
});
