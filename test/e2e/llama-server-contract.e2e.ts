/**
 * The tests of the contract against a sidecar whose models real llama-servers compute. A test whose promise does not depend on
 * who computes runs unchanged, in a process of its own. Needs `make peers`.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { env, execPath } from 'node:process';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { LlamaServer } from '../../bench/support/peers.js';
import { EMBEDDED_MODEL } from '../../sidecar/engine-client/weight-files.js';
import { embeddedTestModel } from '../support/models.js';
import { RUN } from './contract-files.js';

t.setTimeout(900_000);

const TESTS = fileURLToPath(new URL('..', import.meta.url));

const more = ['--metrics', '--jinja', '-fa', 'off'];
const tiny = await embeddedTestModel();
// As many slots as the models on a file have seats together.
const servers = new Map([
  [tiny, await LlamaServer.start(tiny, { threads: 1, slots: 16, contextPerSlot: 16_384, more })],
  [EMBEDDED_MODEL, await LlamaServer.start(EMBEDDED_MODEL, { threads: 1, slots: 8, contextPerSlot: 8192, more })],
]);
t.teardown(async () => {
  for (const server of servers.values()) await server.close();
});
const urls = Object.fromEntries([...servers].map(([file, { port }]) => [file, `http://127.0.0.1:${port}`]));

for (const [file, differs] of Object.entries(RUN)) {
  t.test(file, async (t) => {
    const child = spawn(execPath, [`${TESTS}/${file}.test.js`], {
      env: { ...env, TEST_LLAMA_SERVERS: JSON.stringify(urls) },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const [output] = await Promise.all([text(child.stdout), once(child, 'exit')]);
    const failed = [...output.matchAll(/^not ok \d+ - (.*?)(?: # time=.*)?$/gm)].map(([, name]) => name);
    t.strictSame(failed, differs, output.slice(Math.max(0, output.indexOf('not ok')), 4000));
    t.match(output, /^ok \d+ - /m, 'some passed');
  });
}
