import t from 'tap';
import { Findings } from '../../../bench/soak/findings.js';

t.test('each value that differs from its bound is counted', async (t) => {
  const findings = new Findings();
  findings.is('known', 3);
  findings.is('equal', 3n, 3n);
  findings.atMost('within', 32, 32);
  findings.atMost('shrank', -5, 32);
  t.strictSame([findings.wrong, findings.conclusion], [0, 'All is as it should be.']);
  findings.is<bigint>('unequal', 2n, 3n);
  findings.atMost('a leak', 32.1, 32);
  findings.atMost('never seen', NaN, 32);
  t.strictSame([findings.wrong, findings.conclusion], [3, '**3 of these are not as they should be.**']);
  t.strictSame(findings.rows[4], { what: 'unequal', value: '2', 'should be': '3' });
  t.strictSame(findings.rows[5], { what: 'a leak', value: 32.1, 'should be': 'at most 32' });
});
