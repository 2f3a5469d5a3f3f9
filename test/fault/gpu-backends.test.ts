/**
 * `gpu: auto` with real engines on a host whose GPU libraries end their process. The libraries are stubs that this test compiles: of
 * CUDA's, the addon of the CPU with a `llama_decode` of its own, so that the model loads and its first step aborts, or the first one that
 * ra-engine (engine/native) makes; of Vulkan's, one that aborts as it is loaded.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { findAddon, KNOWN_VERSION } from '../../engine/llama/addon-file.js';
import { embeddedTestModel } from '../support/models.js';
import { SHORT } from '../support/open-stream.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

/** What node-llama-cpp looks for, in the order of the loader's paths, before it counts a backend as supported. */
const DRIVERS = [
  'libnvidia-ml.so.1',
  'libcuda.so.1',
  'libcudart.so.12',
  'libcublas.so.12',
  'libcublasLt.so.12',
  'libvulkan.so.1',
];

const HEAD = ['dlfcn', 'stdio', 'stdlib', 'string'].reduce(
  (all, name) => `${all}#include <${name}.h>\n`,
  '#define _GNU_SOURCE\n',
);

const ABORTS = `fputs("CUDA error: no kernel image is available for execution on the device\\n", stderr); abort();`;

/** `CALLER`: in the name of the file whose calls abort; those of others go on to llama.cpp's own. `batch`: as in llama.h. */
const SOURCES = {
  cuda: `struct batch { int tokens; void * of[6]; };
int llama_decode(void * context, struct batch batch) {
  Dl_info from;
  if (dladdr(__builtin_return_address(0), &from) && strstr(from.dli_fname, CALLER)) { ${ABORTS} }
  return ((int (*)(void *, struct batch)) dlsym(RTLD_NEXT, "llama_decode"))(context, batch);
}`,
  vulkan: `__attribute__((constructor)) static void begin(void) { ${ABORTS} }`,
} as const;

const machine = `linux-${process.arch}`;
const local = fileURLToPath(new URL('../llama/localBuilds', import.meta.resolve('node-llama-cpp')));
const isBuilt = (['cuda', 'vulkan'] as const).some((name) => existsSync(join(local, `${machine}-${name}`)));

/**
 * Writes the packages, and what makes each engine find them in place of those of node_modules. `caller`: whose decodes abort; empty:
 * anyone's. Returns the engines' environment.
 */
function stubPackages(dir: string, caller: string): Readonly<Record<string, string>> {
  const cpu = findAddon(false);
  if (cpu === undefined) throw new Error('there is no addon for this machine');
  const libraries = dirname(cpu.file);
  for (const [name, source] of Object.entries(SOURCES)) {
    const bins = join(dir, name, 'bins', `${machine}-${name}`);
    mkdirSync(bins, { recursive: true });
    mkdirSync(join(dir, name, 'dist'));
    writeFileSync(join(dir, name, 'dist/index.js'), '');
    writeFileSync(join(dir, name, 'package.json'), JSON.stringify({ version: KNOWN_VERSION }));
    writeFileSync(join(bins, '_nlcBuildMetadata.json'), JSON.stringify(cpu.metadata));
    const links = name === 'cuda' ? ['-L', libraries, '-l:llama-addon.node', `-Wl,-rpath,${libraries}`] : [];
    execFileSync(
      'cc',
      ['-x', 'c', '-shared', '-fPIC', '-Wl,--no-as-needed', '-o', join(bins, 'llama-addon.node'), '-', ...links],
      { input: `${HEAD}#define CALLER "${caller}"\n${source}\n`, stdio: ['pipe', 'ignore', 'inherit'] },
    );
  }
  const drivers = join(dir, 'drivers');
  mkdirSync(drivers);
  for (const name of DRIVERS) writeFileSync(join(drivers, name), '');
  const preloaded = join(dir, 'preloaded.cjs');
  writeFileSync(
    preloaded,
    `const Module = require('node:module');
const resolve = Module._resolveFilename;
Module._resolveFilename = function (name, ...more) {
  const found = /^@node-llama-cpp\\/linux-\\w+-(cuda|vulkan)$/.exec(name);
  return resolve.call(this, found ? ${JSON.stringify(dir)} + '/' + found[1] + '/dist/index.js' : name, ...more);
};
const dlopen = process.dlopen;
process.dlopen = (module, file, ...flags) => {
  dlopen(module, file, ...flags);
  if (!file.startsWith(${JSON.stringify(join(dir, 'cuda'))})) return;
  const { loadBackends } = module.exports;
  // Its own are read-only.
  const own = Object.getOwnPropertyDescriptors({
    loadBackends: (path) => loadBackends(path ?? ${JSON.stringify(libraries)}),
    ensureGpuDeviceIsSupported: () => undefined,
    getGpuType: () => 'cuda',
    getGpuDeviceInfo: () => ({ deviceNames: ['stub'] }),
    getGpuVramInfo: () => ({ total: 2 ** 36, used: 0, unifiedSize: 0 }),
  });
  module.exports = Object.create(module.exports, own);
};
`,
  );
  return {
    NODE_OPTIONS: [process.env['NODE_OPTIONS'] ?? '', `--require=${preloaded}`].join(' ').trim(),
    LD_LIBRARY_PATH: drivers,
  };
}

t.test(
  'libraries that end the process',
  { skip: isBuilt && 'a backend that was built here comes first' },
  async (t) => {
    const model = { id: CHAT, kind: 'chat', file: await embeddedTestModel(), seats: 1, contextPerSeat: 2048 };

    await t.test('auto: CUDA, whose first step of ours ends it, then Vulkan, then the CPU, which serves', async (t) => {
      const environment = stubPackages(t.testdir({}), 'ra-engine');
      const models = [{ ...model, gpu: 'auto' }];
      const sidecar = await Sidecar.start(t, { config: { models }, environment });
      t.match(await sidecar.logged('engine ready'), { backend: 'cpu' });
      t.equal((await sidecar.chat(SHORT)).status, 200);
      const failed = sidecar.lines.filter(({ event }) => event === 'GPU backend failed');
      t.match(failed, [
        { backend: 'cuda', signal: 'SIGABRT', reason: /^aborted: device-error; another.*install NVIDIA's driver/ },
        {
          backend: 'vulkan',
          signal: 'SIGABRT',
          reason: /^aborted: device-error; another.*install a newer Vulkan driver/,
        },
      ]);
      t.equal(failed.length, 2);
      t.equal(sidecar.lines.filter(({ event }) => event === 'engine forked').length, 3, 'one process for each');
      t.notOk(sidecar.lines.some(({ event }) => event === 'engine lost'));
    });

    await t.test('a backend that was named is not left', async (t) => {
      const environment = stubPackages(t.testdir({}), '');
      const models = [{ ...model, gpu: 'cuda' }];
      const refuses = await Sidecar.launch(t, { config: { models, engine: { backoffMinMs: 10 } }, environment });
      t.match(await refuses.exited(), { code: 1 });
      t.match(refuses.printed, /^ra-sidecar: model .* ended each of 3 loads by a crash \(aborted: device-error\)/m);
      t.notOk(refuses.lines.some(({ event }) => event === 'GPU backend failed' || event === 'engine ready'));
    });
  },
);
