import t from 'tap';
import { runSuites } from './other-node.js';

const version = '22.23.3';

t.test('the HTTP, contract and integration suites on Node 22', (t) => runSuites(t, { version }));

// Below glibc 2.38 the HTTP library's older version is loaded, here its newer one.
t.test('the HTTP and contract suites on Node 22 in a Debian 13 root', (t) =>
  runSuites(t, { version, root: 'x64' }, ['sidecar/http', 'contract']),
);
