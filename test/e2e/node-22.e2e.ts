import t from 'tap';
import { runSuites } from './other-node.js';

t.test('the HTTP, contract and integration suites on Node 22', (t) => runSuites(t, { version: '22.23.3' }));
