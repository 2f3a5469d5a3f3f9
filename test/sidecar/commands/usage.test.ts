import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { usage } from '../../../sidecar/commands/usage.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { Spool } from '../../../sidecar/usage/spool.js';
import { segmentPath } from '../../../sidecar/usage/spool-format.js';
import { runHere } from '../../support/command-here.js';
import { FakeClock } from '../../support/fake-clock.js';
import { OPTIONS } from '../../support/spool-harness.js';
import { usageRecord } from '../../support/usage-records.js';

const CLI = fileURLToPath(new URL('../../../sidecar/cli.js', import.meta.url));

function configOf(dataDir: string): Config {
  const loaded = loadConfig({ RA_DATA_DIR: dataDir });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}

async function run(args: readonly string[], config: Config): Promise<{ code: number; text: string }> {
  let text = '';
  const out = new Writable({
    write: (part, _, done) => {
      text += String(part);
      done();
    },
  });
  const code = await usage(config, args, { out, err: (part) => (text += part) });
  return { code, text };
}

/** A spool on the real disk with one closed request. */
async function spoolIn(dataDir: string): Promise<Spool> {
  const opened = await Spool.open(join(dataDir, 'usage'), { ...OPTIONS, groupRecords: 1 }, { clock: new FakeClock() });
  if (opened.kind === 'held') throw new Error('held');
  const record = usageRecord('a', 'close');
  opened.spool.append(record);
  await opened.spool.sync(record);
  return opened.spool;
}

t.test('verify: 0 for a spool without problems, also while it is written and before its first record', async (t) => {
  const config = configOf(t.testdir({ usage: {} }));
  t.strictSame(await run(['verify', '--json'], config), {
    code: 0,
    text: '{"segments":0,"records":0,"findings":[]}\n',
  });
  const spool = await spoolIn(config.dataDir);
  t.match(await run(['verify', '--json'], config), { code: 0, text: '{"segments":1,"records":1,"findings":[]}\n' });
  await spool.close();
  t.match(await run(['verify'], config), { code: 0, text: /: 1 segments, 1 records, no damage\n$/ });
});

t.test('verify: 1 for damage, for a missing segment and for a cut end', async (t) => {
  const config = configOf(t.testdir());
  const dir = join(config.dataDir, 'usage');
  mkdirSync(dir);
  writeFileSync(segmentPath(dir, 1), 'rubbish\n');
  t.match(await run(['verify'], config), { code: 1, text: /^segment 1: 8 bytes from offset 0 are damaged/ });
  t.match(await run(['verify'], config), { text: /^segment 1: the spool was not closed: it stops at offset 8/m });
  t.match(JSON.parse((await run(['verify', '--json'], config)).text), {
    findings: [
      { kind: 'damage', segment: 1, offset: 0, bytes: 8 },
      { kind: 'unfinished', segment: 1, offset: 8, bytes: 0 },
    ],
  });
  writeFileSync(segmentPath(dir, 5), '48 00000000 {"kind":"head","after":{"segment":4,"offset":9}}\n');
  t.equal((await run(['verify'], config)).code, 1);
});

t.test('anything else is a wrong command line', async (t) => {
  const config = configOf(t.testdir());
  for (const args of [[], ['verfy'], ['verify', '--yaml']]) {
    t.match(
      await run(args, config),
      { code: 2, text: /^ra-sidecar: .*\n\nusage: ra-sidecar usage verify/ },
      args.join(' '),
    );
  }
});

t.test('the program calls the command, and prints nothing else on stdout', async (t) => {
  const dataDir = t.testdir({ usage: {} });
  const cli = (...args: string[]): ReturnType<typeof spawnSync> =>
    spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8', env: { ...process.env, RA_DATA_DIR: dataDir } });
  t.match(cli('usage', 'verify', '--json'), { status: 0, stdout: '{"segments":0,"records":0,"findings":[]}\n' });
  t.match(cli('nonsense'), { status: 2, stderr: /usage verify\|export/ });
});

t.test('where there is no spool, the settings are probably wrong: one line and 1', async (t) => {
  const environment = { RA_DATA_DIR: t.testdir() };
  for (const action of ['verify', 'export']) {
    const { code, stdout, stderr } = await runHere(['usage', action], environment);
    t.strictSame([code, stdout], [1, ''], action);
    t.match(stderr, /^ra-sidecar: there is no usage spool at \S+\/usage: .*RA_DATA_DIR.*\n$/, action);
  }
});

t.test('a failing disk is no finding of verify but an error', async (t) => {
  const config = configOf(t.testdir({ usage: 'a file in place of a folder' }));
  await t.rejects(run(['verify'], config), { code: 'ENOTDIR' });
});
