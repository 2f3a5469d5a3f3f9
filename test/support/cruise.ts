/**
 * Checks imports against rules in the form of dependency-cruiser's, of which it has what architecture-rules.ts uses. The sources are
 * formatted, so that imports are found without a parser, in a tenth of the time.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { architectureRules, type ImportRule, type PathRule } from './architecture-rules.js';

/** One violation: the rule’s name and the two ends of the import. */
export interface Violation {
  readonly rule: string;
  readonly from: string;
  readonly to: string;
}

interface Import {
  readonly from: string;
  /** A source from the root, or the name of a package. */
  readonly to: string;
  readonly dynamic: boolean;
  readonly typeOnly: boolean;
}

const FOLDERS = ['sidecar', 'engine', 'bench', 'test'];
/** No file imports a test, so a test is in no cycle, and no other rule is about what it imports. */
const LEFT_OUT = /\/\.cache\/|\.d\.ts$|\.(test|e2e)\.ts$/;
/** `import … from`, `export … from`, an import for its effects, and one that is evaluated or of a type in place. */
const IMPORT = /^(?:import|export)( type)?\b[^;'"]*? from '([^']+)'|^import '([^']+)'|\bimport\('([^']+)'\)/gm;

/** Checks all imports below `root`, types included, but those of tests. `files`: all sources that were read. */
export function cruise(root: string): { files: string[]; violations: Violation[] } {
  const files = FOLDERS.filter((folder) => existsSync(join(root, folder)))
    .flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((path) => `${folder}/${path}`),
    )
    .filter((path) => path.endsWith('.ts') && !LEFT_OUT.test(path))
    .sort();
  const imports = files.flatMap((path) => importsIn(root, path));
  const development = developmentOf(root);
  const next = new Map(files.map((path) => [path, [] as string[]]));
  for (const { from, to } of imports) next.get(from)?.push(to);
  const reached = reachOf(next);
  const violations = architectureRules.flatMap((rule) => {
    const { name, from, to } = rule;
    if (to.reachable === true) {
      const starts = files.filter((path) => matches(from, path));
      return starts.flatMap((start) =>
        [...reached(start)].filter((end) => matches(to, end)).map((end) => ({ rule: name, from: start, to: end })),
      );
    }
    return imports
      .filter((each) => matches(from, each.from) && matches(to, each.to) && isMeant(rule, each, reached, development))
      .map((each) => ({ rule: name, from: each.from, to: each.to }));
  });
  return { files, violations };
}

function isMeant(
  { to }: ImportRule,
  { from, to: end, dynamic, typeOnly }: Import,
  reached: (from: string) => ReadonlySet<string>,
  development: (name: string) => boolean,
): boolean {
  if (to.circular === true && !reached(end).has(from)) return false;
  if (to.dynamic === false && dynamic) return false;
  if (to.typeOnly === false && typeOnly) return false;
  return to.development !== true || development(end);
}

const known = new Map<string, RegExp>();

function isOf(pattern: string, found: string): boolean {
  const expression = known.get(pattern) ?? new RegExp(pattern);
  known.set(pattern, expression);
  return expression.test(found);
}

function matches({ path, pathNot = [] }: PathRule, found: string): boolean {
  const is = (pattern: string): boolean => isOf(pattern, found);
  return (path === undefined || [path].flat().some(is)) && ![pathNot].flat().some(is);
}

function importsIn(root: string, from: string): Import[] {
  const text = readFileSync(join(root, from), 'utf8');
  return Array.from(text.matchAll(IMPORT), ([, type, named, effects, placed]) => {
    const specifier = named ?? effects ?? placed ?? '';
    const to = specifier.startsWith('.') ? sourceOf(root, posix.join(dirname(from), specifier)) : specifier;
    return { from, to, dynamic: placed !== undefined, typeOnly: type !== undefined };
  });
}

/** Of a compiled module’s name; of what is no source of ours, the name. */
function sourceOf(root: string, name: string): string {
  const source = name.replace(/\.js$/, '.ts');
  return existsSync(join(root, source)) ? source : name;
}

/** Whether a package is none that the product needs, by the manifest. */
function developmentOf(root: string): (name: string) => boolean {
  if (!existsSync(join(root, 'package.json'))) return () => false;
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Record<string, object | undefined>;
  const needed = ['dependencies', 'optionalDependencies', 'peerDependencies'].flatMap((kind) =>
    Object.keys(manifest[kind] ?? {}),
  );
  return (name) => {
    const [scope = '', own = ''] = name.split('/');
    const isPackage = !FOLDERS.includes(scope) && !name.startsWith('node:');
    return isPackage && !needed.includes(scope.startsWith('@') ? `${scope}/${own}` : scope);
  };
}

/** All that a source imports, at once or through others. Each source's answer is kept. */
function reachOf(next: ReadonlyMap<string, readonly string[]>): (from: string) => ReadonlySet<string> {
  const all = new Map<string, Set<string>>();
  return (from) => {
    const before = all.get(from);
    if (before) return before;
    const seen = new Set<string>();
    for (const waiting = [from]; waiting.length > 0;) {
      for (const to of next.get(waiting.pop() ?? '') ?? []) {
        if (seen.has(to)) continue;
        seen.add(to);
        waiting.push(to);
      }
    }
    all.set(from, seen);
    return seen;
  };
}
