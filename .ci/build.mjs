// Compiles the sources to dist/, those alone that differ from what was compiled last, and removes what was compiled of deleted ones.
// Usage, in the repository's root: node .ci/build.mjs [product]
// `product` writes the programs of the sidecar and the engine alone, without a check of types: what a start needs. Otherwise each module
// is compiled by itself too, for tests and benches, and the compiler checks the types of all.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BUNDLED, bundle } from './bundle.mjs';

const PRODUCT = ['sidecar', 'engine'];
const ALL = [...PRODUCT, 'bench', 'test'];
/** Scripts of the console, which the browser runs as they are; their types are those of the feed. */
const PAGE = 'sidecar/console/page';
const DIST = 'dist';
/** The digest of each source that is compiled, and of what wrote it; and of all sources when their types were last found right. */
const STAMP = join(DIST, '.built.json');
/** What the compiled code depends on besides its source. */
const TOOLS = ['package-lock.json', 'tsconfig.json', '.ci/build.mjs', '.ci/bundle.mjs'];

const product = process.argv[2] === 'product';
const digest = (...texts) => texts.reduce((hash, text) => hash.update(text), createHash('sha256')).digest('hex');
const tools = digest(...TOOLS.map((path) => readFileSync(path)));

mkdirSync(DIST, { recursive: true });
const stamp = readStamp();
if (stamp.tools !== tools) stamp.files = {};
const sources = new Map((product ? PRODUCT : ALL).flatMap(sourcesIn).map((path) => [path, digest(readFileSync(path))]));

const wanted = digest(tools, ...PRODUCT.flatMap(digestsOf));
if (stamp.product !== wanted || !stamp.bundle.outputs.every((path) => existsSync(path))) {
  say('writes the programs');
  stamp.bundle = await bundle(stamp.bundle).catch(failed);
  stamp.product = wanted;
  writeStamp({ ...stamp, tools });
}

if (!product) {
  removeOutputs();
  const changed = [...sources]
    .filter(([path]) => !BUNDLED.has(path))
    .filter(([path, is]) => stamp.files[path] !== is || !existsSync(outputOf(path)));
  if (changed.length > 0) {
    say(`compiles ${changed.length} of ${sources.size} files`);
    await compile(changed.map(([path]) => path));
    for (const [path, is] of changed) stamp.files[path] = is;
    writeStamp({ ...stamp, tools });
  }
  const types = digest(tools, ...ALL.flatMap(digestsOf), ...pageTexts());
  if (stamp.types !== types) {
    say(`checks the types of ${sources.size} files; takes half a minute the first time, then some seconds`);
    run(process.execPath, 'node_modules/typescript/bin/tsc', '-p', 'tsconfig.json', '--noEmit');
    if (existsSync(PAGE)) run(process.execPath, 'node_modules/typescript/bin/tsc', '-p', PAGE);
    writeStamp({ ...stamp, tools, types });
  }
}

function sourcesIn(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true })
    .filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts') && !path.includes('.cache'))
    .map((path) => `${folder}/${path}`)
    .sort();
}

function pageTexts() {
  if (!existsSync(PAGE)) return [];
  return readdirSync(PAGE).map((name) => readFileSync(join(PAGE, name)));
}

/** Each source's path and digest. */
function digestsOf(folder) {
  return [...sources].filter(([path]) => path.startsWith(`${folder}/`)).flat();
}

function outputOf(source) {
  return join(DIST, source.replace(/ts$/, 'js'));
}

/** Of each source that is gone, so that no test of a deleted source still runs. What else lies in dist/ has no source map. */
function removeOutputs() {
  const bundled = new Set(stamp.bundle.outputs);
  for (const folder of ALL) {
    const compiled = join(DIST, folder);
    if (!existsSync(compiled)) continue;
    for (const path of readdirSync(compiled, { recursive: true })) {
      if (!path.endsWith('.js.map') || bundled.has(join(compiled, path))) continue;
      if (existsSync(join(folder, path.replace(/js\.map$/, 'ts')))) continue;
      rmSync(join(compiled, path));
      rmSync(join(compiled, path.replace(/\.map$/, '')), { force: true });
      delete stamp.files[`${folder}/${path.replace(/js\.map$/, 'ts')}`];
    }
  }
}

/** Module by module, as the setting `isolatedModules` makes possible. esbuild prints what it cannot compile. */
async function compile(entryPoints) {
  const { build } = await import('esbuild');
  await build({
    entryPoints,
    outdir: DIST,
    outbase: '.',
    format: 'esm',
    target: 'es2022',
    sourcemap: true,
    sourcesContent: false,
    legalComments: 'none',
    logLevel: 'warning',
  }).catch(failed);
}

/** esbuild has printed what is wrong with a source. */
function failed({ errors, message }) {
  if (errors === undefined) say(message);
  process.exit(1);
}

/** Ends this process if the program fails. */
function run(program, ...args) {
  const { status } = spawnSync(program, args, { stdio: 'inherit' });
  if (status !== 0) process.exit(1);
}

function readStamp() {
  try {
    return JSON.parse(readFileSync(STAMP, 'utf8'));
  } catch {
    return { files: {} };
  }
}

/** Whole, whenever this process is ended. */
function writeStamp(value) {
  writeFileSync(`${STAMP}.${process.pid}`, JSON.stringify(value));
  renameSync(`${STAMP}.${process.pid}`, STAMP);
}

function say(text) {
  console.error(`make build: ${text}`);
}
