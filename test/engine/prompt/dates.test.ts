import t from 'tap';
import { formatDate } from '../../../engine/prompt/dates.js';

t.test('dates in the format of strftime', (t) => {
  const morning = new Date(2026, 0, 5, 0, 7, 9);
  const evening = new Date(2026, 10, 21, 15, 0, 0);
  t.equal(formatDate(morning, '%Y-%m-%d %y %-d %e %B %b %A %a'), '2026-01-05 26 5  5 January Jan Monday Mon');
  t.equal(formatDate(morning, '%H:%M:%S %I %p 100%%'), '00:07:09 12 AM 100%');
  t.equal(formatDate(evening, '%d %b %Y %I %p'), '21 Nov 2026 03 PM');
  t.equal(formatDate(morning, '%-m/%-d %-H %-I %-M %j'), '1/5 0 12 7 005');
  t.equal(formatDate(evening, '%-m %-H %-I %j'), '11 15 3 325');
  t.throws(() => formatDate(morning, '%Q'));
  t.end();
});
