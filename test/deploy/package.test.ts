/** The npm package: its files and size, and that its installation downloads packages only and runs no script. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';

const MOST_BYTES = 5_000_000;

/** Every file in the tarball matches one of these, and each of these matches a file. */
const WANTED: readonly RegExp[] = [
  /^(LICENSE|README\.md|package\.json)$/,
  /^dist\/(engine|sidecar)\/[\w/.-]+\.js$/,
  /^dist\/sidecar\/contracts\/compiled\/[\w-]+\.cjs$/,
  /^dist\/engine\/bundled\/LICENSES\.txt$/,
  /^docs\/[\w-]+\.(md|png)$/,
  /^engine\/assets\/seedling\.gguf$/,
  /^sidecar\/console\/page\/[\w.-]+\.(js|css|html|svg|json)$/,
  /^node_modules\/node-llama-cpp\/(LICENSE|package\.json)$/,
  /^node_modules\/node-llama-cpp\/dist\/[\w/.-]+\.(js|json)$/,
  /^node_modules\/node-llama-cpp\/llama\/[\w.]+\.json$/,
];

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly scripts?: unknown;
  readonly devDependencies?: unknown;
}

t.test('the packed package', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'ra-package-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  execFileSync(process.execPath, ['.ci/package.mjs', dir], { cwd: sourceRoot, stdio: 'ignore' });
  const tarball = join(dir, 'ra-sidecar-0.1.0.tgz');
  const files = execFileSync('tar', ['tzf', tarball], { encoding: 'utf8', maxBuffer: 1 << 24 })
    .trim()
    .split('\n')
    .map((path) => path.replace(/^package\//, ''));

  t.ok(statSync(tarball).size < MOST_BYTES, `${statSync(tarball).size} bytes`);
  t.strictSame(
    files.filter((path) => !WANTED.some((pattern) => pattern.test(path))),
    [],
    'it contains nothing else: no source, no test, no bench, no key',
  );
  for (const pattern of WANTED)
    t.ok(
      files.some((path) => pattern.test(path)),
      String(pattern),
    );

  const read = (path: string): Manifest => JSON.parse(readFileSync(join(dir, 'package', path), 'utf8')) as Manifest;
  const own = read('package.json');
  const engine = read('node_modules/node-llama-cpp/package.json');
  for (const { scripts, devDependencies } of [own, engine])
    t.strictSame([scripts, devDependencies], [undefined, undefined]);
  t.equal(engine.optionalDependencies, undefined);
  t.strictSame(Object.keys(own.optionalDependencies ?? {}).sort(), [
    '@node-llama-cpp/linux-arm64',
    '@node-llama-cpp/linux-x64',
  ]);
  for (const [name, version] of Object.entries({ ...own.dependencies, ...own.optionalDependencies }))
    t.match(version, /^(npm:@uwsjs\/core@)?\d+\.\d+\.\d+$/, `${name} is exact`);
  for (const name of Object.keys(engine.dependencies))
    t.ok(name in own.dependencies, `${name} is installed for the engine`);
});
