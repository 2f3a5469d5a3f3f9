import t from 'tap';
import { nodeBinary } from './npm-packages.js';
import { run, runSuites, type OtherNode } from './other-node.js';

t.test('the HTTP, contract and integration suites on Node 24', (t) =>
  runSuites(t, { version: '24.21.0', root: 'x64' }),
);

t.test('on a glibc without a binary the start ends with one line, which doctor says too', async (t) => {
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime: string } };
  const [, minor = 0] = header.glibcVersionRuntime.split('.').map(Number);
  const here: OtherNode = { version: '24.21.0' };
  const binary = nodeBinary(here.version);
  const doctor = await run(here, binary, ['node', 'dist/sidecar/cli.js', 'doctor']);
  if (minor >= 38) {
    t.match(doctor.output, /uWebSockets\.js loads/);
    return;
  }
  const why = 'no binary for Node 24\\.21\\.0 on linux x64, glibc 2\\.\\d+: it needs glibc 2\\.38';
  t.match(doctor.output, new RegExp(why));
  const serve = await run(here, binary, ['node', 'dist/sidecar/cli.js', 'serve']);
  t.not(serve.code, 0);
  t.match(serve.output.trim(), new RegExp(`^[^\\n]*${why}[^\\n]*$`), 'nothing but this line');
});
