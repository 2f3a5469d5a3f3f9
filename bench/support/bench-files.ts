/**
 * Which files of the repository a bench's figures depend on: what it imports, and the programs and files that it or one of
 * these names by a path relative to itself, since that is how processes are started here.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** From dist/bench/support. */
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

/** Relative to the compiled module, as in `import`, `new URL` and `fork`. */
const RELATIVE = /'(\.\.?\/[^'\n]+)'/g;
const TYPES_ALONE = /^import type [^;]+;/gm;

/** Folders that benches write to or that hold what others built. */
const NOT_CODE = /^(?:bench\/(?:\.cache|results)|node_modules)(?:\/|$)/;

/** The versions of all packages. */
const PACKAGES = 'package-lock.json';
/** What `make engine-native` compiles, and the module that loads it. */
const NATIVE = { sources: 'engine/native', loader: 'engine/llama/addon.ts' };

/** What each file names, by root and path: benches share most of it. */
const named = new Map<string, readonly string[]>();

/** The files and folders, from the repository's root; `bench` is a source file, such as `bench/engine/limit.bench.ts`. */
export function filesOf(bench: string, root = ROOT): readonly string[] {
  const files = new Set([bench, PACKAGES]);
  // A set is iterated over what is added meanwhile, too.
  for (const file of files) {
    if (file.endsWith('.ts')) for (const other of namedIn(file, root)) files.add(other);
  }
  if (files.has(NATIVE.loader)) files.add(NATIVE.sources);
  return [...files].sort();
}

/** A digest of the contents of such files and folders: equal for equal code, whether it was committed or not. */
export function digestOf(files: readonly string[], root = ROOT): string {
  const hash = createHash('sha256');
  for (const file of files.flatMap((path) => within(path, root))) {
    hash.update(`${file}\n`).update(readFileSync(join(root, file)));
  }
  return hash.digest('hex').slice(0, 12);
}

/** The source of the bench that this process runs, if it runs one. */
export function runningBench(script = process.argv[1]): string | undefined {
  return script?.split('/dist/')[1]?.replace(/js$/, 'ts');
}

function namedIn(file: string, root: string): readonly string[] {
  const key = `${root}\n${file}`;
  const known = named.get(key);
  if (known) return known;
  const text = readFileSync(join(root, file), 'utf8').replace(TYPES_ALONE, '');
  const found = [...text.matchAll(RELATIVE)].flatMap(([, path = '']) => {
    const source = sourceOf(join('dist', dirname(file), path));
    return isThere(join(root, source)) && source !== '.' && !NOT_CODE.test(source) ? [source] : [];
  });
  named.set(key, found);
  return found;
}

/** Of a path that a compiled module names. */
function sourceOf(path: string): string {
  const trimmed = path.replace(/\/$/, '');
  if (trimmed === 'dist') return '.';
  return trimmed.startsWith('dist/') ? trimmed.slice('dist/'.length).replace(/js$/, 'ts') : trimmed;
}

/** All files of a folder; a file itself. */
function within(path: string, root: string): string[] {
  if (!statSync(join(root, path)).isDirectory()) return [path];
  return readdirSync(join(root, path), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort();
}

function isThere(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}
