/** Zero retention of an uncaught error in each process: an error that quotes a prompt must not be printed. */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { canary, MARK } from '../support/canaries.js';
import { LeakSearch } from '../support/leak-search.js';
import { childrenOf } from '../support/processes.js';
import { RetentionWatch } from '../support/retention-watch.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

/** As from JSON.parse, its message quotes the input; it also has everything else that Node prints of an error. */
const FAULT = `process.on('SIGUSR2', () => {
  const text = '${canary()}';
  throw Object.assign(new Error(text, { cause: new Error(text) }), { body: text });
});`;

t.test('a fault in the prompt host, the engine and the sidecar', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'ra-crash-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const preloaded = join(dir, 'fault.mjs');
  await writeFile(preloaded, FAULT);
  const listen = { host: '127.0.0.1', port: 0 };
  const config = { listen, operators: listen, dataDir: dir, log: { level: 'trace' }, ...(await chatOnly(1)) };
  await writeFile(join(dir, 'config.json'), JSON.stringify(config));
  const sidecar = await Sidecar.startWith(t, {
    RA_CONFIG: join(dir, 'config.json'),
    NODE_OPTIONS: `--import=${pathToFileURL(preloaded).href}`,
  });

  const children = childrenOf(sidecar.pid);
  t.equal(children.length, 2, 'a prompt host and an engine');
  for (const { pid, command } of children) {
    t.match(
      readFileSync(`/proc/${pid}/limits`, 'utf8'),
      /^Max core file size +0 +0 /m,
      `${command} leaves no core file`,
    );
  }
  const host = children.find(({ command }) => command.includes('prompts/host.js short'));
  process.kill(Number(host?.pid), 'SIGUSR2');
  await sidecar.logged('prompt host restarts');
  process.kill(sidecar.enginePid(CHAT), 'SIGUSR2');
  await sidecar.logged('engine lost');
  process.kill(sidecar.pid, 'SIGUSR2');
  t.same(await sidecar.exited(), { code: 1, signal: null });

  const watch = new RetentionWatch();
  watch.output(sidecar);
  t.same(watch.leaks(new LeakSearch([MARK])), []);
  t.match(sidecar.lines.at(-1), { level: 50, event: 'crashed', fault: { name: 'Error', stack: [/fault\.mjs/] } });
});
