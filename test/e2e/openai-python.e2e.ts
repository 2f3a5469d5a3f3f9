/**
 * OpenAI's own client for Python, unmodified, through the flow of files and batches (test/e2e/clients/openai_batch.py). Its package is
 * installed by pip into an ignored folder, from whichever index pip is set up for.
 */
import { execFile, spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { storeOnDisk } from '../support/batch-client.js';
import { makeKey } from '../support/keys.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { sourceRoot } from '../support/source-root.js';

const run = promisify(execFile);

/** The one that the flow was tried with; pip takes a later one where it has not this one. */
const PACKAGE = 'openai>=3.22.1';
/** Excluded from tests that read sources. */
const folder = join(sourceRoot, 'bench/.cache/openai-python');
const python = join(folder, 'bin/python3');

/** Makes the folder, once. */
function install(): void {
  if (existsSync(join(folder, 'installed'))) return;
  for (const [command, ...args] of [
    ['python3', '-m', 'venv', folder],
    [python, '-m', 'pip', 'install', '--quiet', PACKAGE],
  ] as const) {
    const { status, stderr } = spawnSync(command, args, { encoding: 'utf8' });
    if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr}`);
  }
  writeFileSync(join(folder, 'installed'), '');
}

t.setTimeout(300_000);
install();

t.test('files and batches by OpenAI’s client for Python', async (t) => {
  const dir = t.testdir();
  const [own, other] = [makeKey(), makeKey({ id: 'other', account: 'umbrella' })];
  const keys = join(dir, 'keys.json');
  writeFileSync(keys, JSON.stringify({ version: 1, keys: [own.stored, other.stored] }));
  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: { ...(await chatOnly(4)), dataDir: join(dir, 'data'), keys: { file: keys }, batch: storeOnDisk(dir) },
  });
  const env = { RA_BASE: sidecar.base, RA_KEY: own.key, RA_OTHER_KEY: other.key, RA_MODEL: CHAT };
  const { stdout } = await run(python, [join(sourceRoot, 'test/e2e/clients/openai_batch.py')], { env });
  const { version, ...seen } = JSON.parse(stdout) as { readonly version: string };
  t.comment(`openai ${version}`);
  t.strictSame(seen, {
    file: ['requests.jsonl', 'batch', 3600],
    batch: ['completed', 20, 0, { for: 'a test' }],
    answers: Array.from({ length: 20 }, (_, i) => i),
    texts: true,
    usage: true,
    streamed: true,
    failed: ['failed', 1, 'body.stream'],
    held: true,
    cancelled: 'cancelled',
    listed: true,
    files: true,
    stranger: [true, true, true, 0],
    deleted: true,
    gone: true,
  });
});
