import { cpSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openLlama } from '../../../engine/llama/backend.js';
import { findAddon, KNOWN_VERSION } from '../../../engine/llama/addon-file.js';

const HERE = { platform: 'linux', arch: 'x64' } as const;
const METADATA = { buildOptions: { gpu: false } };

/** A folder of node-llama-cpp beside its package with a prebuilt addon of this version. */
function installed(
  t: Test,
  version = KNOWN_VERSION,
): { readonly root: string; readonly bins: string; readonly modules: string } {
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
  return { root, bins, modules };
}

t.test('the addon of the package for this machine', (t) => {
  const { root, bins } = installed(t);
  const file = join(bins, 'llama-addon.node');
  t.same(findAddon(false, root, HERE), { backend: false, file, metadata: METADATA, build: 'prebuilt' });
  t.equal(findAddon(false, root, { platform: 'linux', arch: 'riscv64' }), undefined, 'another machine');
  t.equal(findAddon('cuda', root, HERE), undefined, 'another backend');
  t.equal(findAddon(false, installed(t, '3.0.0').root, HERE), undefined, 'another version');
  const incomplete = installed(t);
  rmSync(join(incomplete.bins, '_nlcBuildMetadata.json'));
  t.equal(findAddon(false, incomplete.root, HERE), undefined, 'other files than in this version');
  t.end();
});

t.test('one that was built here goes before the package’s', (t) => {
  const { root, bins } = installed(t);
  const built = join(root, 'llama/localBuilds/linux-x64/Release');
  cpSync(bins, built, { recursive: true });
  t.same(findAddon(false, root, HERE), {
    backend: false,
    file: join(built, 'llama-addon.node'),
    metadata: METADATA,
    build: 'localBuild',
  });
  t.end();
});

t.test('a GPU’s addon, with the folder of its backends for older drivers', (t) => {
  const gpu = (...names: string[]): string => {
    const { root, modules } = installed(t);
    for (const name of names)
      cpSync(join(modules, '@node-llama-cpp/linux-x64'), join(modules, name), { recursive: true });
    const bins = join(modules, '@node-llama-cpp/linux-x64-cuda/bins');
    renameSync(join(bins, 'linux-x64'), join(bins, 'linux-x64-cuda'));
    return root;
  };
  const modules = (root: string): string => join(root, '../@node-llama-cpp');
  const alone = gpu('@node-llama-cpp/linux-x64-cuda');
  const file = join(modules(alone), 'linux-x64-cuda/bins/linux-x64-cuda/llama-addon.node');
  t.same(findAddon('cuda', alone, HERE), { backend: 'cuda', file, metadata: METADATA, build: 'prebuilt' });
  const both = gpu('@node-llama-cpp/linux-x64-cuda', '@node-llama-cpp/linux-x64-cuda-ext');
  t.equal(findAddon('cuda', both, HERE)?.extensions, join(modules(both), 'linux-x64-cuda-ext/bins/linux-x64-cuda'));
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
