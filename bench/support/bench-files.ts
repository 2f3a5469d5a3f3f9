/**
 * Which files of the repository a bench's figures depend on: what it imports, the programs and files that it or one of these
 * names by a path relative to itself, since that is how processes are started here, and what writes the built code that one of
 * these loads.
 *
 * Not among them is what only judges results: whether they are of the present code (this file), and how steady the machine was. Nor are
 * the Makefile, package.json and tsconfig.json: most changes of these do not affect figures. After one that does, such as
 * another compiler flag, remove the results that must be measured again.
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
/** By the module that loads built code: what it is compiled from, or the program that writes it. */
const BUILT = new Map([
  ['engine/llama/addon.ts', 'engine/native'],
  ['engine/llama/package.ts', '.ci/bundle.mjs'],
  ['sidecar/contracts/schema-code.ts', 'sidecar/build/write-schemas.ts'],
]);

/** What only judges results: no figure depends on it. */
const JUDGES: ReadonlySet<string> = new Set(['bench/support/bench-files.ts', 'bench/support/machine-speed.ts']);

/** What each file or folder names, by root and path: benches share most of it. */
const named = new Map<string, readonly string[]>();

/** The files and folders, from the repository's root; `bench` is a source file, such as `bench/engine/limit.bench.ts`. */
export function filesOf(bench: string, root = ROOT): readonly string[] {
  const files = new Set([bench, PACKAGES]);
  // A set is iterated over what is added meanwhile, too.
  for (const path of files) for (const other of namedIn(path, root)) files.add(other);
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

/** The source of the bench that this process runs; undefined if it runs another program, such as a test. */
export function runningBench(script = process.argv[1]): string | undefined {
  const source = script?.split('/dist/')[1]?.replace(/js$/, 'ts');
  return source?.startsWith('bench/') ? source : undefined;
}

/** What a file, or the files of a folder, name, and what the code that it loads is built from. */
function namedIn(path: string, root: string): readonly string[] {
  const key = `${root}\n${path}`;
  const known = named.get(key);
  if (known) return known;
  const sources = within(path, root).filter((file) => file.endsWith('.ts'));
  const built = BUILT.get(path);
  const found = [...sources.flatMap((file) => namesIn(file, root)), ...(built === undefined ? [] : [built])];
  named.set(key, found);
  return found;
}

function namesIn(file: string, root: string): string[] {
  const text = readFileSync(join(root, file), 'utf8').replace(TYPES_ALONE, '');
  return [...text.matchAll(RELATIVE)].flatMap(([, path = '']) => {
    const source = sourceOf(join('dist', dirname(file), path));
    const counts = source !== '.' && !NOT_CODE.test(source) && !JUDGES.has(source);
    return counts && isThere(join(root, source)) ? [source] : [];
  });
}

/** Of a path that a compiled module names. */
function sourceOf(path: string): string {
  const trimmed = path.replace(/\/$/, '');
  if (trimmed === 'dist') return '.';
  return trimmed.startsWith('dist/') ? trimmed.slice('dist/'.length).replace(/js$/, 'ts') : trimmed;
}

/** All files of a folder; a file itself. */
export function within(path: string, root: string): string[] {
  if (statSync(join(root, path), { throwIfNoEntry: false })?.isDirectory() !== true) return [path];
  return readdirSync(join(root, path), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort();
}

function isThere(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}
