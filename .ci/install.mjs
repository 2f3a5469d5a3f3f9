// Installs the packages of package-lock.json into node_modules, less the backends of llama.cpp that this host cannot use: npm takes
// all of them on every Linux host, 630 MB. Usage, in the repository's root: node .ci/install.mjs [GPU] [FOLDER]
// GPU: `auto` (the default) means the backends for which this host has a driver or device; `cuda`, `vulkan` and `all` add to what is
// installed; `none` adds nothing. FOLDER is where the host's files are looked for, / by default.
//
// The lock file decides versions and checksums. npm has no option to leave out one package, so it runs in a folder of its own, .install/,
// with a copy of the lock in which the backends that are left out name another operating system; what it made then replaces
// node_modules. A failed or interrupted run leaves node_modules as it was. A backend that is wanted later is added in the same way.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const STAGE = '.install';
const LOCK = 'package-lock.json';
/** Named by Node's ABI: npm installs native binaries for the Node that it runs on, so another Node needs another install. */
const STAMP = `node_modules/.installed-lock.${process.versions.modules}.json`;
const BACKENDS = 'node_modules/@node-llama-cpp';
const GPUS = ['cuda', 'vulkan'];

const [gpu = 'auto', host = '/'] = process.argv.slice(2);
if (!['auto', 'none', 'false', 'all', ...GPUS].includes(gpu)) fail(`GPU=${gpu} is not auto, none, cuda, vulkan or all`);

const lockText = readFileSync(LOCK, 'utf8');
const lock = JSON.parse(lockText);
/** The backends for this operating system, by folder: also those for other processors, which npm would install to compile for them. */
const forSystem = Object.keys(lock.packages).filter((path) => path.startsWith(`${BACKENDS}/${process.platform}-`));
const here = `${BACKENDS}/${process.platform}-${process.arch}`;
/** cuda-ext has the libraries and kernels for older devices, and goes with cuda. */
const ofGpu = (name) => forSystem.filter((path) => path === `${here}-${name}` || path.startsWith(`${here}-${name}-`));

const found = devices();
const names = gpu === 'all' ? GPUS : GPUS.includes(gpu) ? [gpu] : gpu === 'auto' ? found : [];
for (const name of names)
  if (gpu === name && ofGpu(name).length === 0)
    say(`npm has no ${name} backend for ${process.arch}; make engine-native GPU=${name} compiles one`);
const wanted = names.flatMap(ofGpu);

const upToDate = existsSync(STAMP) && readFileSync(STAMP, 'utf8') === lockText;
try {
  if (!upToDate) installAll();
  const missing = wanted.filter((path) => !existsSync(path));
  if (missing.length > 0) installBackends(missing);
} finally {
  rmSync(STAGE, { recursive: true, force: true });
}

/** The kinds of GPU that this host has: NVIDIA's by its driver, also in a container or under WSL; any other by its render node. */
function devices() {
  const there = (path) => existsSync(join(host, path));
  const nvidia = ['proc/driver/nvidia/version', 'dev/nvidiactl', 'dev/dxg'].some(there);
  const dri = join(host, 'dev/dri');
  const renders = existsSync(dri) && readdirSync(dri).some((name) => name.startsWith('renderD'));
  return [...(nvidia ? ['cuda'] : []), ...(renders ? ['vulkan'] : [])];
}

function installAll() {
  const leftOut = new Set(forSystem.filter((path) => path !== here && !wanted.includes(path)));
  say('installs the packages of package-lock.json with npm; takes a minute or two where npm has not cached them');
  const others = GPUS.filter((name) => ofGpu(name).some((path) => leftOut.has(path)));
  if (others.length > 0) {
    const why = gpu === 'auto' ? 'this host has no device for it' : `GPU=${gpu}`;
    say(
      `leaves out llama.cpp's GPU backend for ${others.join(' and for ')}: ${why}. To get it: make install GPU=${others[0]}`,
    );
  }
  const packages = Object.fromEntries(
    Object.entries(lock.packages).map(([path, entry]) => [
      path,
      leftOut.has(path) ? { ...entry, os: ['none'] } : entry,
    ]),
  );
  stage({ ...lock, packages }, readFileSync('package.json', 'utf8'));
  writeFileSync(join(STAGE, STAMP), lockText);
  if (existsSync('node_modules')) renameSync('node_modules', join(STAGE, 'replaced'));
  renameSync(join(STAGE, 'node_modules'), 'node_modules');
}

/** Adds them to node_modules, where all else stays as it is. */
function installBackends(paths) {
  const packages = paths.map((path) => path.slice('node_modules/'.length));
  say(`installs ${packages.join(' and ')} with npm; some hundred MB`);
  const dependencies = Object.fromEntries(paths.map((path, i) => [packages[i], lock.packages[path].version]));
  const manifest = { name: 'backends', version: '0.0.0', dependencies };
  const entries = Object.fromEntries(paths.map((path) => [path, { ...lock.packages[path], optional: undefined }]));
  stage(
    { ...manifest, lockfileVersion: lock.lockfileVersion, packages: { '': manifest, ...entries } },
    JSON.stringify(manifest),
  );
  for (const path of paths) {
    mkdirSync(dirname(path), { recursive: true });
    renameSync(join(STAGE, path), path);
  }
}

/** Runs `npm ci` in the folder of its own. */
function stage(lock, manifest) {
  rmSync(STAGE, { recursive: true, force: true });
  mkdirSync(STAGE);
  writeFileSync(join(STAGE, 'package.json'), manifest);
  writeFileSync(join(STAGE, LOCK), JSON.stringify(lock));
  if (existsSync('.npmrc')) cpSync('.npmrc', join(STAGE, '.npmrc'));
  // npm's warnings would be some 80 lines: of tools of the tests that want a newer Node than 20, and of packages with install scripts.
  const { status, error } = spawnSync('npm', ['ci', '--loglevel=error'], {
    cwd: STAGE,
    stdio: 'inherit',
    // The package's install script must not download or compile other binaries.
    env: { ...process.env, NODE_LLAMA_CPP_SKIP_DOWNLOAD: 'true' },
  });
  if (status !== 0) fail(error === undefined ? 'npm ci failed; node_modules is unchanged' : `npm: ${error.message}`);
}

function say(text) {
  console.error(`make install: ${text}`);
}

function fail(text) {
  say(text);
  rmSync(STAGE, { recursive: true, force: true });
  process.exit(1);
}
