/** Paths of files that are not regular, and a stdout or stderr that cannot be written. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { checkModelFile } from '../../engine/llama/model-file.js';
import { runCli } from '../support/cli.js';
import { eventually } from '../support/processes.js';
import { chatOnly, Sidecar, unloadedChat } from '../support/sidecar.js';

const CLI = fileURLToPath(new URL('../../sidecar/cli.js', import.meta.url));

t.test(
  'a FIFO in place of a followed file, and no reader of the log, delay neither a reload nor the end',
  async (t) => {
    const file = join(t.testdir(), 'keys.json');
    const sidecar = await Sidecar.start(t, { stub: true, config: { ...(await chatOnly(1)), keys: { file } } });
    rmSync(file);
    execFileSync('mkfifo', [file]);
    sidecar.child.kill('SIGHUP');
    await eventually('it is said', () => sidecar.lines.some(({ reason }) => reason === 'is not a regular file'));
    const response = await sidecar.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 1 });
    t.equal(response.status, 200, 'the previous keys stay in force');
    await response.text();

    sidecar.child.stdout?.destroy();
    for (let i = 0; i < 3; i += 1) {
      const response = await sidecar.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 1 });
      t.equal(response.status, 200);
      await response.text();
    }
    await eventually('it is said', () => sidecar.printed.includes('the log cannot be written to stdout (EPIPE)'));
    sidecar.child.kill('SIGTERM');
    t.strictSame(await sidecar.exited(), { code: 0, signal: null });
  },
);

t.test('a FIFO at the start is refused in one line', async (t) => {
  const fifo = join(t.testdir(), 'fifo');
  execFileSync('mkfifo', [fifo]);
  t.match(await runCli(['serve'], { RA_CONFIG: fifo }), {
    code: 1,
    stderr: `config: is not a regular file (file ${fifo})\n`,
  });
  const data = { RA_DATA_DIR: t.testdirName, RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' };
  for (const variable of ['RA_KEYS_FILE', 'RA_PRICING_FILE', 'RA_CREDIT_FILE', 'RA_OPERATORS_SECRET_FILE']) {
    const { code, stderr } = await runCli(['serve'], { ...data, [variable]: fifo });
    t.equal(code, 1, variable);
    t.match(stderr, /is not a regular file \(file .*fifo\)\n$/, variable);
  }
  t.match(checkModelFile(fifo), { kind: 'bad', problem: /not a regular file/ });
});

t.test('a log without room for it from the start on, also without a reader of stderr', async (t) => {
  const model = (await unloadedChat()).models;
  const environment = {
    ...process.env,
    RA_DATA_DIR: t.testdir(),
    RA_MODELS: JSON.stringify(model),
    RA_LISTEN_PORT: '0',
    RA_OPERATORS_PORT: '0',
  };
  const full = openSync('/dev/full', 'w');
  for (const [stdout, stderr, ready] of [
    [full, 'pipe', 'is ready at'],
    ['pipe', full, '"listening"'],
  ] as const) {
    const child = spawn(process.execPath, [CLI, 'serve'], { stdio: ['ignore', stdout, stderr], env: environment });
    t.teardown(() => child.kill('SIGKILL'));
    const exit = once(child, 'exit');
    let printed = '';
    const out = stdout === 'pipe' ? child.stdout : child.stderr;
    out?.setEncoding('utf8').on('data', (text: string) => (printed += text));
    await eventually('it runs', () => printed.includes(ready));
    if (stdout === full) t.match(printed, /the log cannot be written to stdout \(ENOSPC\)/);
    child.kill('SIGTERM');
    t.strictSame(await exit, [0, null]);
  }
});

t.test('a command whose output cannot be written fails', async (t) => {
  const full = openSync('/dev/full', 'w');
  const dataDir = t.testdir({ usage: { '00000000000000000001.seg': '' } });
  for (const command of [
    ['keys', 'list', '--json'],
    ['usage', 'verify', '--json'],
  ]) {
    const env = { ...process.env, RA_DATA_DIR: dataDir };
    const child = spawn(process.execPath, [CLI, ...command], { stdio: ['ignore', full, 'pipe'], env });
    let printed = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (printed += text));
    t.strictSame(await once(child, 'close'), [1, null], command.join(' '));
    t.match(printed, /ENOSPC/);
  }
});
