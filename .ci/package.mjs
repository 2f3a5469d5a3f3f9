// Stages and packs the npm package. Usage, after a build: node .ci/package.mjs [FOLDER OF THE TARBALL], default dist/
//
// node-llama-cpp is part of the tarball, without its llama.cpp source and with a manifest of its own, for two reasons: npm would
// install its backends for NVIDIA's GPUs and for Vulkan (610 MB) on every Linux host, and run its install script, which downloads
// and compiles llama.cpp where no backend loads. A host with a GPU installs its backend by name (docs/deploy.md).
// What node-llama-cpp depends on is a dependency of ours, in the locked versions, and its own manifest names none: npm takes what
// a bundled package names as bundled too, if it lies below this package, and leaves an empty folder for it: in each `npm install
// --global`, and elsewhere where versions conflict.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { PRODUCT_FILES } from './bundle.mjs';

const ENGINE = 'node_modules/node-llama-cpp';
/** What node-llama-cpp reads when it loads a prebuilt backend; the source and the build tools stay out. */
const ENGINE_FILES = [
  'LICENSE',
  'dist',
  'llama/binariesGithubRelease.json',
  'llama/llama.cpp.info.json',
  'llama/package.json',
];
/** Which only a compilation needs; they are large. */
const BUILD_ONLY = new Set(['cmake-js', 'node-addon-api']);
/** Backends that npm installs where they run; each is at most 30 MB. */
const BACKENDS = /^@node-llama-cpp\/(linux-x64|linux-arm64)$/;

const into = process.argv[2] ?? 'dist';
const STAGE = join(into, 'package');
const read = (path) => JSON.parse(readFileSync(path, 'utf8'));
const write = (path, value) => writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);

const { private: _private, devDependencies: _dev, scripts: _scripts, tap: _tap, ...manifest } = read('package.json');
const {
  devDependencies: _d,
  scripts: _s,
  optionalDependencies,
  dependencies,
  peerDependencies: _p,
  peerDependenciesMeta: _m,
  ...engine
} = read(join(ENGINE, 'package.json'));
const { packages } = read('package-lock.json');

/** Of the engine's dependencies the version that the lock has for it. */
const locked = (name) => [
  name,
  (packages[`${ENGINE}/node_modules/${name}`] ?? packages[`node_modules/${name}`]).version,
];
const engineDependencies = Object.fromEntries(
  Object.keys(dependencies)
    .filter((name) => !BUILD_ONLY.has(name))
    .map((name) => locked(name)),
);
const backends = Object.fromEntries(Object.entries(optionalDependencies).filter(([name]) => BACKENDS.test(name)));

rmSync(STAGE, { recursive: true, force: true });
mkdirSync(join(STAGE, ENGINE), { recursive: true });
mkdirSync(into, { recursive: true });
const copy = (path) =>
  cpSync(path, join(STAGE, path), { recursive: true, filter: (file) => !/\.(d\.ts|map)$/.test(file) });
for (const path of [...manifest.files.filter((path) => !path.startsWith('dist/')), ...read(PRODUCT_FILES), 'LICENSE'])
  copy(path);
for (const path of ENGINE_FILES) copy(join(ENGINE, path));
write(join(STAGE, 'package.json'), {
  ...manifest,
  dependencies: { ...engineDependencies, ...manifest.dependencies },
  optionalDependencies: backends,
  bundleDependencies: ['node-llama-cpp'],
});
write(join(STAGE, ENGINE, 'package.json'), engine);
const [packed] = JSON.parse(
  execFileSync('npm', ['pack', '--json', '--pack-destination', into, resolve(STAGE)], { encoding: 'utf8' }),
);
console.log(`${join(into, packed.filename)}: ${(packed.size / 1e6).toFixed(2)} MB, ${packed.files.length} files`);
