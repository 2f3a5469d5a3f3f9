/** Debian 13 roots, made by debootstrap and kept in `test/e2e/.cache`: one for x64, one for arm64, whose programs qemu-user runs. */
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { sourceRoot } from '../support/source-root.js';
import { CACHE, nodeBinary, type Architecture } from './npm-packages.js';

const MIRROR = 'http://deb.debian.org/debian';
const INCLUDE = '--include=ca-certificates,libatomic1,procps,git,make,openssl,curl';
/** Where the repository is mounted in a root. */
export const INSIDE = '/repository';
/** Debian's names. */
const DEBIAN: Readonly<Record<Architecture, string>> = { x64: 'amd64', arm64: 'arm64' };
/** The kernel's list of interpreters for foreign program files, and Debian's entry that runs arm64 programs by qemu-user. */
const BINFMT = '/proc/sys/fs/binfmt_misc';
const ARM64_FORMAT = '/usr/lib/binfmt.d/qemu-aarch64.conf';

/** The folder of a root. */
export function rootOf(architecture: Architecture): string {
  return join(CACHE, architecture === 'x64' ? 'trixie' : `trixie-${architecture}`);
}

/** Makes a root if it does not exist. */
function makeRoot(architecture: Architecture): void {
  const root = rootOf(architecture);
  if (architecture === 'arm64') runArm64();
  if (existsSync(join(root, 'made'))) return;
  rmSync(root, { recursive: true, force: true });
  mkdirSync(CACHE, { recursive: true });
  const debian = `--arch=${DEBIAN[architecture]}`;
  execFileSync('debootstrap', ['--variant=minbase', debian, INCLUDE, 'trixie', root, MIRROR], { stdio: 'ignore' });
  writeFileSync(join(root, 'etc/hosts'), '127.0.0.1 localhost\n');
  writeFileSync(join(root, 'made'), '');
}

/** Lets the kernel start programs for arm64 by qemu-user, where the installation of Debian's package did not. */
function runArm64(): void {
  if (!existsSync(join(BINFMT, 'register'))) execFileSync('mount', ['-t', 'binfmt_misc', 'none', BINFMT]);
  if (!existsSync(join(BINFMT, 'qemu-aarch64'))) writeFileSync(join(BINFMT, 'register'), readFileSync(ARM64_FORMAT));
}

/** Makes a root in which {@link insideRoot} can run programs. */
export function prepareRoot(architecture: Architecture): void {
  makeRoot(architecture);
  const root = rootOf(architecture);
  copyFileSync('/etc/resolv.conf', join(root, 'etc/resolv.conf'));
  for (const folder of ['proc', 'dev', INSIDE, packages()]) mkdirSync(join(root, folder), { recursive: true });
}

/**
 * The command that runs `command` in a prepared root, with /proc, /dev, the repository and its packages. They are mounted in a mount
 * namespace of the command's own: if they outlived a test that was killed, removing the root would remove this host's devices.
 */
export function insideRoot(architecture: Architecture, command: readonly string[]): readonly string[] {
  const mounts = `mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount --bind "$1" "$0${INSIDE}"; mount --bind "$2" "$0$2"`;
  const script = `${mounts}; shift 2; exec chroot "$0" "$@"`;
  const unshare = ['unshare', '--mount', '--propagation', 'slave', 'sh', '-ec', script];
  return [...unshare, rootOf(architecture), sourceRoot, packages(), ...command];
}

/** A worktree's packages may be a link to those of another one. */
function packages(): string {
  return realpathSync(join(sourceRoot, 'node_modules'));
}

/** A folder for a base image: the root with this Node and npm in /usr/local, as Docker's official images have them. */
export function baseFolder(version: string): string {
  const folder = join(CACHE, `base-${version}`);
  if (existsSync(folder)) return folder;
  makeRoot('x64');
  const parts = `${folder}.part`;
  rmSync(parts, { recursive: true, force: true });
  mkdirSync(join(parts, 'usr/local/lib/node_modules'), { recursive: true });
  mkdirSync(join(parts, 'usr/local/bin'), { recursive: true });
  const leftOut = ['proc/*', 'dev/*', 'sys/*', 'opt', 'repository', 'var/lib/apt', 'var/cache'].map(
    (path) => `--exclude=./${path}`,
  );
  const copy = ['-c', `tar c -C "$0" --one-file-system ${leftOut.join(' ')} . | tar x -C "$1"`, rootOf('x64'), parts];
  execFileSync('sh', copy, { stdio: 'ignore' });
  copyFileSync(nodeBinary(version), join(parts, 'usr/local/bin/node'));
  const npm = join(execFileSync('npm', ['root', '--global'], { encoding: 'utf8' }).trim(), 'npm');
  cpSync(npm, join(parts, 'usr/local/lib/node_modules/npm'), { recursive: true });
  for (const name of ['npm', 'npx'])
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, join(parts, 'usr/local/bin', name));
  renameSync(parts, folder);
  return folder;
}
