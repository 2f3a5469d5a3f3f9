/**
 * What `make dist` makes for a release: the npm package, its files and size, and that its installation downloads packages only and
 * runs no script; its SBOM; checksums.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t from 'tap';
import { VERSION } from '../../sidecar/lib/version.js';
import { sourceRoot } from '../support/source-root.js';

/** A million bytes of them are the addons of engine/native, for two processors. */
const MOST_BYTES = 6_000_000;

/** Every file in the tarball matches one of these, and each of these matches a file. */
const WANTED: readonly RegExp[] = [
  /^(LICENSE|(CHANGELOG|CONTRIBUTING|README|SECURITY)\.md|package\.json)$/,
  /^dist\/engine\/((remote\/)?main|inspect|vision|llama\/mask-worker|protocol\/parent-watch-thread)\.js$/,
  /^dist\/sidecar\/(cli|prompts\/(host|worker|compiler)|access\/(large-file|key-task)-thread|engine-client\/weight-hasher|http\/uws)\.js$/,
  /^dist\/(sidecar|sidecar\/prompts|engine)\/parts\/[\w-]+\.js$/,
  /^dist\/sidecar\/(LICENSES\.txt|contracts\/written-code\.txt|api\/openapi-(strict|compatible)(-batch)?\.json)$/,
  /^deploy\/systemd\/ra-sidecar[\w-]*\.(service|env|sysusers|jsonc)$/,
  /^deploy\/(docker|envoy|grafana|haproxy|kubernetes|nginx|prometheus)\/([\w-]+\/)?[\w-]+(\.(cfg|conf|json|jsonc|md|yaml|yml|sh))?$/,
  /^docs\/([\w-]+\.(md|png)|operators-openapi\.json)$/,
  /^engine\/assets\/seedling\.gguf$/,
  /^engine\/native\/bin\/(LICENSES\.txt|ra-(engine|vision)\.linux-(x64|arm64)\.node)$/,
  /^sidecar\/console\/page\/[\w.-]+\.(js|css|html|svg|json)$/,
  /^node_modules\/node-llama-cpp\/(LICENSE|package\.json)$/,
  /^node_modules\/node-llama-cpp\/dist\/[\w/.-]+\.(js|json)$/,
  /^node_modules\/node-llama-cpp\/llama\/[\w.]+\.json$/,
];

interface Lock {
  readonly packages: Readonly<Record<string, { readonly version?: string }>>;
}

/** What node-llama-cpp needs to compile llama.cpp. */
const BUILD_ONLY: ReadonlySet<string> = new Set(['cmake-js', 'node-addon-api']);

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: unknown;
  readonly scripts?: unknown;
  readonly devDependencies?: unknown;
}

const dir = mkdtempSync(join(tmpdir(), 'ra-package-'));
t.teardown(() => rmSync(dir, { recursive: true, force: true }));
const release = join(dir, 'release');
// The build is there: a test runs it.
execFileSync('make', ['--old-file=build', 'dist', 'IMAGE=no', `RELEASE=${release}`], {
  cwd: sourceRoot,
  stdio: 'pipe',
});
const tarball = join(release, `ra-sidecar-${VERSION}.tgz`);
execFileSync('tar', ['xzf', tarball, '-C', dir]);
const read = (path: string): Manifest => JSON.parse(readFileSync(path, 'utf8')) as Manifest;
const ENGINE = 'node_modules/node-llama-cpp/package.json';
const own = read(join(dir, 'package/package.json'));

t.test('the packed package', async (t) => {
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

  const readme = readFileSync(join(dir, 'package/README.md'), 'utf8');
  const links = [...readme.matchAll(/\]\((?!https?:)([^)#\s]+)/g)].map(([, path = '']) => path);
  t.ok(links.length > 20, `${links.length} links`);
  t.strictSame(
    links.filter((path) => !existsSync(join(dir, 'package', path))),
    [],
    'the installed README links to what is installed',
  );

  const engine = read(join(dir, 'package', ENGINE));
  for (const { scripts, devDependencies } of [own, engine])
    t.strictSame([scripts, devDependencies], [undefined, undefined]);
  t.strictSame(
    [engine.dependencies, engine.optionalDependencies, engine.peerDependencies],
    [undefined, undefined, undefined],
    'npm install --global would leave empty folders for what a bundled package names',
  );
  t.strictSame(Object.keys(own.optionalDependencies ?? {}).sort(), [
    '@node-llama-cpp/linux-arm64',
    '@node-llama-cpp/linux-x64',
  ]);
  for (const [name, version] of Object.entries({ ...own.dependencies, ...own.optionalDependencies }))
    t.match(version, /^(npm:@uwsjs\/core@)?\d+\.\d+\.\d+$/, `${name} is exact`);
  const needed = Object.keys(read(join(sourceRoot, ENGINE)).dependencies ?? {}).filter((name) => !BUILD_ONLY.has(name));
  t.ok(needed.length > 10);
  // npm resolved the ranges of the engine's manifest when it made the lock file.
  const { packages } = JSON.parse(readFileSync(join(sourceRoot, 'package-lock.json'), 'utf8')) as Lock;
  for (const name of needed) {
    const resolved = packages[`${dirname(ENGINE)}/node_modules/${name}`] ?? packages[`node_modules/${name}`];
    t.equal(own.dependencies?.[name], resolved?.version, `${name} is installed for the engine`);
  }
});

interface Component {
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly hashes?: readonly { readonly alg: string }[];
  readonly components?: readonly { readonly name: string }[];
}

t.test('the SBOM has all that an installation gets, in the same versions, and no tool of the build', async (t) => {
  const sbom = JSON.parse(readFileSync(join(release, 'sbom.cdx.json'), 'utf8')) as {
    readonly bomFormat: string;
    readonly metadata: { readonly component: { readonly name: string; readonly version: string } };
    readonly components: readonly Component[];
  };
  t.equal(sbom.bomFormat, 'CycloneDX');
  t.match(sbom.metadata.component, { name: 'ra-sidecar', version: VERSION });
  const listed = new Map(sbom.components.map((one) => [one.purl, one]));
  const wanted = Object.entries({ ...own.dependencies, ...own.optionalDependencies }).map(([name, version]) =>
    // An alias names the package behind it.
    version.startsWith('npm:') ? version.slice('npm:'.length) : `${name}@${version}`,
  );
  t.strictSame(
    wanted.filter((one) => !listed.has(`pkg:npm/${one.replace(/^@/, '%40')}`)),
    [],
  );
  t.strictSame(
    sbom.components.filter(({ name }) => /^(tap|typescript|eslint|openai|lmdb)$|cuda|vulkan|cmake/.test(name)),
    [],
    'no development package, and no backend that only a host with a GPU installs',
  );
  t.ok(
    sbom.components.filter(({ hashes = [] }) => hashes.some(({ alg }) => alg === 'SHA-512')).length > 100,
    'with the checksums of the lock file',
  );
  const native = sbom.components.filter(({ name }) => name.endsWith('.node'));
  t.equal(native.length, 4, 'the addons of engine/native');
  t.ok(
    native.every(({ components = [] }) => components.length > 0),
    'with what was compiled into them',
  );
});

t.test('the checksums are those of the files', async (t) => {
  t.strictSame(readdirSync(release).sort(), ['SHA256SUMS', `ra-sidecar-${VERSION}.tgz`, 'sbom.cdx.json']);
  const checked = execFileSync('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: release, encoding: 'utf8' });
  t.strictSame(checked.trim().split('\n').sort(), [`ra-sidecar-${VERSION}.tgz: OK`, 'sbom.cdx.json: OK']);
});
