import { execFileSync } from 'node:child_process';
import t from 'tap';
import './bare-children.js';

t.test('a process that a test starts has none of tap’s hooks', (t) => {
  const script =
    'console.log(process.env.NODE_OPTIONS ?? "", Object.getOwnPropertySymbols(globalThis).map(String).join())';
  for (const env of [process.env, { ...process.env }, undefined]) {
    const said = execFileSync(process.execPath, ['-e', script], { env, encoding: 'utf8' });
    t.notMatch(said, /tapjs/);
  }
  t.end();
});
