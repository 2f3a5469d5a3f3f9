/** Node 22 loads the HTTP library's older version below glibc 2.38 (node-22.e2e.ts), and from it on its newer one. */
import t from 'tap';
import { nodeBinary } from './npm-packages.js';
import { run, runSuites, type OtherNode } from './other-node.js';

t.test('the HTTP and contract suites on Node 22 in a Debian 13 root', async (t) => {
  const inRoot: OtherNode = { version: '22.23.3', root: 'x64' };
  await runSuites(t, inRoot, ['sidecar/http', 'contract']);
  const script =
    "import('./dist/sidecar/http/uws.js').then(() => console.log(process.report.getReport().sharedObjects.join(' ')))";
  const { output } = await run(inRoot, nodeBinary(inRoot.version), ['node', '-e', script]);
  t.match(output, /node_modules\/(uWebSockets\.js\/node_modules\/)?@uwsjs\/linux-x64-22\/uws\.node/);
  t.notMatch(output, /20\.51/);
});
