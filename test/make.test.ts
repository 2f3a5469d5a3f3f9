/** What `make install` and `make build` do, in small repositories of their own: by npm itself, with a registry on this machine. */
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { sourceRoot } from './support/source-root.js';

interface Ran {
  readonly code: number | null;
  /** What it printed to the standard error. */
  readonly says: string;
}

function run(cwd: string, script: string, ...args: readonly string[]): Promise<Ran> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [script, ...args], { cwd }, (_error, _stdout, stderr) =>
      resolve({ code: child.exitCode, says: stderr }),
    );
  });
}

function write(root: string, files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}

const CPU = `${process.platform}-${process.arch}`;
/** As node-llama-cpp names them: npm would install the last here too, to compile for another processor. */
const BACKENDS = [CPU, `${CPU}-cuda`, `${CPU}-cuda-ext`, `${CPU}-vulkan`, `${process.platform}-riscv64`];

interface Repository {
  readonly root: string;
  /** The packages that npm has fetched since the last call. */
  readonly fetched: () => string[];
  /** The backends in node_modules. */
  readonly installed: () => string[];
}

/** A repository with one dependency that names all backends as optional, and a registry of their packages. */
async function repository(t: Test): Promise<Repository> {
  const root = t.testdir();
  const tarballs = new Map<string, Buffer>();
  const version = '1.0.0';
  const optionalDependencies = Object.fromEntries(BACKENDS.map((name) => [`@node-llama-cpp/${name}`, version]));
  const pack = (name: string, more: object): void => {
    write(root, { 'packed/package/package.json': JSON.stringify({ name, version, ...more }) });
    tarballs.set(`/${name}.tgz`, execFileSync('tar', ['cz', '-C', join(root, 'packed'), 'package']));
  };
  pack('node-llama-cpp', { optionalDependencies });
  for (const name of Object.keys(optionalDependencies)) pack(name, {});

  let asked: string[] = [];
  const server = createServer(({ url = '' }, response) => {
    asked.push(url.slice('/'.length, -'.tgz'.length));
    response.end(tarballs.get(url));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const manifest = { name: 'small', version, dependencies: { 'node-llama-cpp': version } };
  const entries = [...tarballs].map(([path, tarball]) => {
    const name = path.slice('/'.length, -'.tgz'.length);
    const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`;
    const optional = name === 'node-llama-cpp' ? { optionalDependencies } : { optional: true, os: [process.platform] };
    return [`node_modules/${name}`, { version, resolved: `${base}${path}`, integrity, ...optional }] as const;
  });
  const lock = { ...manifest, lockfileVersion: 3, packages: { '': manifest, ...Object.fromEntries(entries) } };
  write(root, {
    'package.json': JSON.stringify(manifest),
    'package-lock.json': JSON.stringify(lock),
    '.npmrc': `cache=${join(root, 'cache')}\naudit=false\nfetch-retries=0\n`,
  });
  return {
    root,
    fetched: () => {
      const before = asked;
      asked = [];
      return before.sort();
    },
    installed: () => readdirSync(join(root, 'node_modules/@node-llama-cpp')).sort(),
  };
}

const install = join(sourceRoot, '.ci/install.mjs');

t.test('a host without a GPU gets no backend for one, and says how to get it', async (t) => {
  const { root, fetched, installed } = await repository(t);
  const lock = readFileSync(join(root, 'package-lock.json'), 'utf8');
  const first = await run(root, install, 'auto', join(root, 'host'));
  t.equal(first.code, 0, first.says);
  t.match(first.says, /installs the packages.*\n.*leaves out .*cuda.*vulkan.*make install GPU=cuda/);
  t.strictSame(fetched(), [`@node-llama-cpp/${CPU}`, 'node-llama-cpp']);
  t.strictSame(installed(), [CPU]);

  write(root, { 'node_modules/made-here': '' });
  t.strictSame(await run(root, install, 'auto', join(root, 'host')), { code: 0, says: '' }, 'once');
  const added = await run(root, install, 'cuda', join(root, 'host'));
  t.equal(added.code, 0, added.says);
  t.strictSame(fetched(), [`@node-llama-cpp/${CPU}-cuda`, `@node-llama-cpp/${CPU}-cuda-ext`]);
  t.strictSame(await run(root, install, 'auto', join(root, 'host')), { code: 0, says: '' });
  t.strictSame(installed(), [CPU, `${CPU}-cuda`, `${CPU}-cuda-ext`], 'what was asked for stays');
  t.ok(existsSync(join(root, 'node_modules/made-here')), 'and so does all else');
  t.equal(readFileSync(join(root, 'package-lock.json'), 'utf8'), lock);
});

t.test(
  'a host with devices gets their backends; a package that differs from the lock file changes nothing',
  async (t) => {
    const { root, fetched, installed } = await repository(t);
    write(root, { 'host/dev/nvidiactl': '', 'host/dev/dri/renderD128': '' });
    const all = await run(root, install, 'auto', join(root, 'host'));
    t.equal(all.code, 0, all.says);
    t.notMatch(all.says, /leaves out/);
    t.strictSame(installed(), [CPU, `${CPU}-cuda`, `${CPU}-cuda-ext`, `${CPU}-vulkan`]);
    t.equal(fetched().length, 5);

    const lock = readFileSync(join(root, 'package-lock.json'), 'utf8');
    write(root, { 'package-lock.json': lock.replace(/sha512-[^"]*/, `sha512-${'A'.repeat(86)}==`) });
    const other = await run(root, install, 'auto', join(root, 'host'));
    t.match(other, { code: 1, says: /EINTEGRITY[^]*node_modules is unchanged/ });
    t.equal(installed().length, 4);
    t.notOk(existsSync(join(root, '.install')));
    t.match(await run(root, install, 'metal'), { code: 1, says: /GPU=metal is not auto, none, cuda, vulkan or all/ });
  },
);

t.test('a build compiles what has changed, and nothing if nothing has', async (t) => {
  const root = t.testdir();
  cpSync(join(sourceRoot, '.ci/build.mjs'), join(root, '.ci/build.mjs'));
  symlinkSync(join(sourceRoot, 'node_modules'), join(root, 'node_modules'));
  const options = {
    target: 'ES2022',
    module: 'NodeNext',
    types: [],
    lib: ['ES5'],
    strict: true,
    rootDir: '.',
    outDir: 'dist',
  };
  write(root, {
    'package.json': '{"type":"module"}',
    'package-lock.json': '{}',
    'tsconfig.json': JSON.stringify({ compilerOptions: options, include: ['sidecar', 'test'] }),
    '.ci/bundle.mjs': `import { appendFileSync, writeFileSync } from 'node:fs';
      export const BUNDLED = new Set(['sidecar/cli.ts']);
      export const bundle = async (before = {}) => (appendFileSync('steps', 'bundle ' + (before.outputs ?? '') + ';'), writeFileSync('written', ''), { outputs: ['written'] });`,
    'sidecar/cli.ts': `export const program: number = 1;\n`,
    'sidecar/a.ts': 'export const a: number = 1;\n',
    'test/a.test.ts': `export { a } from '../sidecar/a.js';\n`,
    'dist/.cache/kept': '',
    'dist/test/gone.test.js': '',
    'dist/test/gone.test.js.map': '',
  });
  const steps = (): string => {
    const text = existsSync(join(root, 'steps')) ? readFileSync(join(root, 'steps'), 'utf8') : '';
    rmSync(join(root, 'steps'), { force: true });
    return text;
  };
  const build = (...args: readonly string[]): Promise<Ran> => run(root, join(root, '.ci/build.mjs'), ...args);
  const there = (path: string): boolean => existsSync(join(root, 'dist', path));

  t.match(await build('product'), { code: 0, says: /^make build: writes the programs\n$/ });
  t.equal(steps(), 'bundle ;');
  t.strictSame(await build('product'), { code: 0, says: '' });

  t.match(await build(), { code: 0, says: /^make build: compiles 2 of 3 files\n.*checks the types/ });
  t.strictSame(
    [there('sidecar/cli.js'), there('test/gone.test.js'), there('test/gone.test.js.map'), there('.cache/kept')],
    [false, false, false, true],
    'a program is not compiled by itself, and what was compiled of a deleted source goes',
  );
  t.strictSame(await build(), { code: 0, says: '' });
  t.strictSame(await build('product'), { code: 0, says: '' });
  t.equal(steps(), '');

  write(root, { 'test/b.test.ts': 'export const b = 1;\n' });
  t.match(
    await build(),
    { code: 0, says: /^make build: compiles 1 of 4 files\n/ },
    'another file is the only one compiled',
  );
  t.equal(steps(), '');

  write(root, { 'sidecar/a.ts': `export const a: number = 'a';\n` });
  t.match(await build('product'), { code: 0, says: /^make build: writes the programs\n$/ });
  t.equal(steps(), 'bundle written;', 'with what the last run wrote');
  t.match(await build(), { code: 1, says: /checks the types/ }, 'types are wrong until they are right');
  write(root, { 'sidecar/b.ts': 'export const b = ;\n' });
  t.match(await build(), { code: 1, says: /sidecar\/b\.ts:1:17/ });
  rmSync(join(root, 'written'));
  t.match(await build('product'), { says: /writes the programs/ }, 'a file that is missing is written again');
});
