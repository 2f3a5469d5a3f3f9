/**
 * Compiles engine/native into two addons for each processor, which stand in the repository so that a clone, the npm package and the image
 * need no compiler: ra-engine (next tokens, threads, embeddings, pooling, states) and ra-vision (libmtmd, the sandbox). Both are linked to
 * no llama.cpp: they call the exported functions of whichever library node-llama-cpp's own addon has loaded, on any backend.
 *
 * Two builds by one compiler give the same bytes. Each addon has the digest of its sources in it, which a test compares.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, join } from 'node:path';

/** Debian's package of each is g++ and g++-aarch64-linux-gnu. By the processor's name in Node. */
const COMPILERS = { x64: 'g++', arm64: 'aarch64-linux-gnu-g++' } as const;

export type Processor = keyof typeof COMPILERS;

export const PROCESSORS = Object.keys(COMPILERS) as readonly Processor[];

/** The addons, each with its own sources and headers; libmtmd's are {@link mtmdSources}. */
const ADDONS = {
  'ra-engine': [
    'next-token.cpp',
    'picker.h',
    'places.h',
    'speculation.h',
    'speculation.cpp',
    'embeddings.cpp',
    'pooling.cpp',
    'states.cpp',
    'pages.cpp',
  ],
  'ra-vision': ['vision.cpp', 'sandbox.cpp'],
} as const;

export type AddonName = keyof typeof ADDONS;

export const ADDON_NAMES = Object.keys(ADDONS) as readonly AddonName[];

const FLAGS = ['-std=c++17', '-fPIC', '-fvisibility=hidden', '-ffunction-sections', '-fdata-sections', '-Wall'];
/** Of our own sources; libmtmd's only build graphs. */
const OWN_FLAGS = ['-O3', '-DNAPI_VERSION=7', '-DNAPI_CPP_EXCEPTIONS'];
const LIBRARY_FLAGS = ['-O2', '-w'];
const LINK_FLAGS = ['-shared', '-Wl,--as-needed', '-Wl,--gc-sections', '-Wl,--build-id=none', '-s'];

/** Of libmtmd: what reads files, and what makes sound, is left out. */
const NOT_OF_MTMD: ReadonlySet<string> = new Set([
  'mtmd-helper.cpp',
  'mtmd-helper-gen.cpp',
  'mtmd-cli.cpp',
  'deprecation-warning.cpp',
]);

/** The file of an addon in `folder`, which is engine/native/bin or another target of {@link buildNative}. */
export function addonFile(folder: string, name: AddonName, processor: string): string {
  return join(folder, `${name}.linux-${processor}.node`);
}

/**
 * `sources:` and the SHA-256 of all that an addon is made of except for the compiler: our C++, the flags, and the versions of
 * llama.cpp, node-llama-cpp and Node's C++ headers. `root`: the repository, with its dependencies installed. Throws file system
 * errors.
 */
export function digestOf(root: string, name: AddonName): string {
  const hash = createHash('sha256');
  for (const file of ADDONS[name]) hash.update(`${file}\n${readFileSync(join(root, 'engine/native', file), 'utf8')}`);
  hash.update(JSON.stringify([FLAGS, OWN_FLAGS, LIBRARY_FLAGS, LINK_FLAGS, [...NOT_OF_MTMD]]));
  hash.update(readFileSync(join(root, 'node_modules/node-llama-cpp/llama/llama.cpp.info.json')));
  for (const dependency of ['node-llama-cpp', 'node-addon-api', 'node-api-headers']) {
    const { version } = JSON.parse(readFileSync(join(root, 'node_modules', dependency, 'package.json'), 'utf8')) as {
      readonly version: string;
    };
    hash.update(`${dependency} ${version}\n`);
  }
  return `sources:${hash.digest('hex')}`;
}

/**
 * Writes both addons for each of `processors` into `folder`. Takes three minutes of processor time each, most of it for libmtmd.
 * Rejects where a compiler is missing or fails, with its output on stderr.
 */
export async function buildNative(
  root: string,
  folder: string,
  processors: readonly Processor[] = PROCESSORS,
  names: readonly AddonName[] = ADDON_NAMES,
): Promise<void> {
  const work = mkdtempSync(join(tmpdir(), 'ra-native-'));
  try {
    const llama = join(work, 'llama.cpp');
    const bundle = join(root, 'node_modules/node-llama-cpp/llama/gitRelease.bundle');
    execFileSync('git', ['-c', 'advice.detachedHead=false', 'clone', '--quiet', bundle, llama], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    mkdirSync(folder, { recursive: true });
    for (const processor of processors)
      for (const name of names) await link(root, llama, join(work, processor), processor, name, folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function link(
  root: string,
  llama: string,
  work: string,
  processor: Processor,
  name: AddonName,
  folder: string,
): Promise<void> {
  const compiler = COMPILERS[processor];
  const mtmd = join(llama, 'tools/mtmd');
  // The compiler writes no path of this machine into its output.
  const paths = [`-ffile-prefix-map=${llama}=llama.cpp`, `-ffile-prefix-map=${root}=.`];
  const llamaHeaders = ['include', 'ggml/include', 'common', 'src', 'vendor', 'tools/mtmd'].map(
    (path) => `-I${join(llama, path)}`,
  );
  const nodeHeaders = ['node-addon-api', 'node-api-headers/include', 'node-llama-cpp/llama/addon'].map(
    (path) => `-I${join(root, 'node_modules', path)}`,
  );
  const compiled: { readonly source: string; readonly args: readonly string[] }[] = ADDONS[name]
    .filter((file) => file.endsWith('.cpp'))
    .map((file) => ({
      source: join(root, 'engine/native', file),
      args: [...OWN_FLAGS, ...nodeHeaders, `-DRA_SOURCES="${digestOf(root, name)}"`],
    }));
  if (name === 'ra-vision') for (const source of mtmdSources(mtmd)) compiled.push({ source, args: LIBRARY_FLAGS });
  mkdirSync(work, { recursive: true });
  const objects = compiled.map(({ source }, i) => join(work, `${name}-${String(i)}-${basename(source)}.o`));
  const waiting = compiled.entries();
  await Promise.all(
    Array.from({ length: availableParallelism() }, async () => {
      for (const [i, { source, args }] of waiting)
        await run(compiler, [...FLAGS, ...args, ...paths, ...llamaHeaders, '-c', source, '-o', objects[i] ?? '']);
    }),
  );
  await run(compiler, [...LINK_FLAGS, ...objects, '-o', addonFile(folder, name, processor)]);
}

function mtmdSources(folder: string): string[] {
  const within = (path: string): string[] =>
    readdirSync(join(folder, path))
      .filter((file) => file.endsWith('.cpp') && !NOT_OF_MTMD.has(file))
      .sort()
      .map((file) => join(folder, path, file));
  return [...within('.'), ...within('models')];
}

async function run(command: string, args: readonly string[]): Promise<void> {
  const child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit'] });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject).once('exit', resolve);
  });
  if (code !== 0) throw new Error(`${command} failed: ${args.at(-1) ?? ''}`);
}
