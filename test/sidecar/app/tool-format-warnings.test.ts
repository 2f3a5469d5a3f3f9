import t from 'tap';
import { warnOfToolFormats } from '../../../sidecar/app/tool-format-warnings.js';

t.test('a JSON instruction that the operator did not choose is logged', (t) => {
  const lines: unknown[] = [];
  const calls = (native: boolean, chosen: boolean) => ({ native, chosen, says: 'how it calls' });
  const models = [
    { id: 'native', calls: calls(true, false) },
    { id: 'named', calls: calls(true, true) },
    { id: 'unknown', calls: calls(false, false) },
    { id: 'chosen', calls: calls(false, true) },
    { id: 'decision' },
  ];
  warnOfToolFormats(models, { warn: (event, fields) => lines.push([event, fields]) });
  t.same(lines, [['tools without a native format', { model: 'unknown', reason: 'how it calls' }]]);
  t.end();
});
