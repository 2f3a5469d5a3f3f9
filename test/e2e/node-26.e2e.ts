import t from 'tap';
import { runSuites } from './other-node.js';

t.test('the HTTP, contract and integration suites on Node 26', (t) =>
  runSuites(t, { version: '26.10.0', root: 'x64' }),
);
