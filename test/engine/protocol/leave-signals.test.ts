import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import t from 'tap';

/** Sends the signals of a group when node-llama-cpp looks for its folders, which it does while its modules are evaluated. */
const DURING_EVALUATION = `
import module from 'node:module';
import url from 'node:url';
const { fileURLToPath } = url;
url.fileURLToPath = (...of) => {
  url.fileURLToPath = fileURLToPath;
  module.syncBuiltinESMExports();
  console.log('evaluating');
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM']) process.kill(process.pid, signal);
  return fileURLToPath(...of);
};
module.syncBuiltinESMExports();`;

for (const name of ['main', 'vision', 'inspect']) {
  t.test(`${name}: signals to the process group do not end one that still evaluates its modules`, async (t) => {
    const entry = fileURLToPath(new URL(`../../../engine/${name}.js`, import.meta.url));
    const preload = `data:text/javascript,${encodeURIComponent(DURING_EVALUATION)}`;
    // Without a link it ends itself, once its modules are evaluated.
    const { signal, stdout } = spawnSync(process.execPath, ['--import', preload, entry], { encoding: 'utf8' });
    t.equal(stdout, 'evaluating\n');
    t.equal(signal, null);
  });
}
