/** Packages of npm's registry that end-to-end tests use beside those of node_modules. */
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { sourceRoot } from '../support/source-root.js';

export type Architecture = 'x64' | 'arm64';

/** What end-to-end tests fetch or make once. */
export const CACHE = join(sourceRoot, 'test/e2e/.cache');

/** The Node of npm's package. */
export function nodeBinary(version: string, architecture: Architecture = 'x64'): string {
  const folder = join(CACHE, `node-${version}${architecture === 'x64' ? '' : `-${architecture}`}`);
  const binary = join(folder, 'bin/node');
  if (!existsSync(binary)) unpack(`node-linux-${architecture}@${version}`, folder);
  chmodSync(binary, 0o755);
  return binary;
}

interface Lock {
  readonly packages: Readonly<Record<string, { readonly version: string; readonly integrity?: string }>>;
}

/**
 * Adds a package to node_modules that npm or `make install` has left out for this host, at its places and in the versions of the lock
 * file.
 */
export function addLocked(name: string): void {
  const { packages } = JSON.parse(readFileSync(join(sourceRoot, 'package-lock.json'), 'utf8')) as Lock;
  for (const [path, { version, integrity }] of Object.entries(packages))
    if (path.endsWith(`node_modules/${name}`) && !existsSync(join(sourceRoot, path)))
      unpack(`${name}@${version}`, join(sourceRoot, path), integrity);
}

/**
 * Unpacks a package of npm's registry into `folder`.
 *
 * @throws {Error} It differs from the lock file's `integrity`.
 */
export function unpack(what: string, folder: string, integrity?: string): void {
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
