import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openLlama } from '../../../engine/llama/backend.js';
import { findPrebuilt, KNOWN_VERSION } from '../../../engine/llama/prebuilt-file.js';

const HERE = { platform: 'linux', arch: 'x64' } as const;
const METADATA = { buildOptions: { gpu: false } };

/** A folder of node-llama-cpp beside its package with a prebuilt addon of this version. */
function installed(t: Test, version = KNOWN_VERSION): { readonly root: string; readonly bins: string } {
  const modules = join(mkdtempSync(join(tmpdir(), 'ra-prebuilt-')), 'node_modules');
  t.teardown(() => rmSync(modules, { recursive: true }));
  const root = join(modules, 'node-llama-cpp');
  const folder = join(modules, '@node-llama-cpp/linux-x64');
  const bins = join(folder, 'bins/linux-x64');
  mkdirSync(root, { recursive: true });
  mkdirSync(bins, { recursive: true });
  mkdirSync(join(folder, 'dist'));
  writeFileSync(join(root, 'package.json'), JSON.stringify({ version: KNOWN_VERSION }));
  writeFileSync(join(folder, 'dist/index.js'), '');
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ version, main: 'dist/index.js' }));
  writeFileSync(join(bins, 'llama-addon.node'), '');
  writeFileSync(join(bins, '_nlcBuildMetadata.json'), JSON.stringify(METADATA));
  return { root, bins };
}

t.test('the addon of the package for this machine', (t) => {
  const { root, bins } = installed(t);
  t.same(findPrebuilt(root, HERE), { file: join(bins, 'llama-addon.node'), metadata: METADATA });
  t.equal(findPrebuilt(root, { platform: 'linux', arch: 'riscv64' }), undefined, 'another machine');
  t.end();
});

t.test('left to getLlama', (t) => {
  const built = installed(t);
  mkdirSync(join(built.root, 'llama/localBuilds'), { recursive: true });
  t.equal(findPrebuilt(built.root, HERE), undefined, 'an addon was built here');
  const downloaded = installed(t);
  cpSync(downloaded.bins, join(downloaded.root, 'bins/linux-x64'), { recursive: true });
  t.equal(findPrebuilt(downloaded.root, HERE), undefined, 'an addon was downloaded');
  t.equal(findPrebuilt(installed(t, '3.0.0').root, HERE), undefined, 'another version');
  const incomplete = installed(t);
  rmSync(join(incomplete.bins, '_nlcBuildMetadata.json'));
  t.equal(findPrebuilt(incomplete.root, HERE), undefined, 'other files than in this version');
  t.end();
});

t.test('no process is started to load it', async (t) => {
  const { execPath } = process;
  // What a fork of this process would run.
  process.execPath = '/bin/false';
  t.teardown(() => (process.execPath = execPath));
  const llama = await openLlama(false);
  t.teardown(() => llama.dispose());
  t.equal(llama.gpu, false);
});
