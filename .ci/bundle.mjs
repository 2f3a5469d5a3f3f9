// Writes the product into dist/: few modules for each program and thread, with all of its own code and of the packages that each start
// needs. To load the modules one by one took half of a start's processor time. Called by .ci/build.mjs.
//
// Programs lie where the compiler would write them (dist/sidecar/cli.js, dist/engine/main.js), so that tests and benches run what is
// installed. What several have in common, and what is loaded when it is used, as commands, OpenTelemetry and NATS, is in `parts` beside
// them.
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { dirname, join, relative, resolve } from 'node:path';
import { build } from 'esbuild';

const DIST = 'dist';
/** Programs and threads that have much in common, which is in modules of its own, in `parts`. */
const GROUPS = [
  { parts: 'sidecar/parts', entries: ['sidecar/cli.ts'] },
  {
    parts: 'sidecar/prompts/parts',
    entries: ['sidecar/prompts/host.ts', 'sidecar/prompts/worker.ts', 'sidecar/prompts/compiler.ts'],
  },
  {
    parts: 'engine/parts',
    entries: ['engine/main.ts', 'engine/remote/main.ts', 'engine/inspect.ts', 'engine/vision.ts'],
  },
];
/** Each becomes one module. */
const WHOLE = [
  'sidecar/engine-client/weight-hasher.ts',
  'sidecar/access/large-file-thread.ts',
  'sidecar/access/key-task-thread.ts',
  // Loaded alone by what checks that the HTTP library's binary fits.
  'sidecar/http/uws.ts',
  'engine/llama/mask-worker.ts',
  'engine/protocol/parent-watch-thread.ts',
];
/** The part of node-llama-cpp that we use, for tests, which import the engine's modules one by one. */
const ENGINE_PACKAGE = 'engine/llama/package.ts';
const WRITER = 'sidecar/build/write-schemas.ts';
const WRITTEN_CODE = 'sidecar/contracts/written-code.ts';
/** What the writer prints beside that module: files that the product reads, in dist/. */
const DATA = [
  'sidecar/contracts/written-code.txt',
  'sidecar/api/openapi-strict.json',
  'sidecar/api/openapi-strict-batch.json',
  'sidecar/api/openapi-compatible.json',
  'sidecar/api/openapi-compatible-batch.json',
];

/** Sources that no compilation of single modules writes. */
export const BUNDLED = new Set([
  ...GROUPS.flatMap(({ entries }) => entries),
  ...WHOLE,
  ENGINE_PACKAGE,
  WRITER,
  WRITTEN_CODE,
]);

/** The product's files in dist/, which a package and an image consist of. */
export const PRODUCT_FILES = join(DIST, '.product.json');

/** Packages whose code is in the modules. Of all others the product imports what it needs when it needs it. */
const INSIDE = /^(@huggingface\/jinja|jsonc-parser|pino|prom-client)$/;

const NODE_LLAMA_CPP = 'node_modules/node-llama-cpp';
/** What engine/llama/package.ts exports, by the module that has it. */
const USED = {
  'bindings/Llama.js': ['Llama'],
  'bindings/types.js': ['LlamaLogLevel'],
  'evaluator/LlamaGrammarEvaluationState.js': ['LlamaGrammarEvaluationState'],
  'evaluator/TokenBias.js': ['TokenBias'],
  'bindings/utils/getLlamaGpuTypes.js': ['getLlamaGpuTypes'],
  'gguf/insights/GgufInsights.js': ['GgufInsights'],
  'gguf/readGgufFileInfo.js': ['readGgufFileInfo'],
  'gguf/types/GgufMetadataTypes.js': ['GgufFileType'],
  'gguf/types/GgufTensorInfoTypes.js': ['GgmlType'],
};

const absent = "() => { throw new Error('this part of node-llama-cpp is not in the bundle'); }";
/** Modules of it that are left out with all that only they import: chats, downloads, compilations. In their place is what throws. */
const LEFT_OUT = {
  // Llama.classes
  'utils/getLlamaClasses.js': `export const getLlamaClasses = ${absent};`,
  // LlamaGrammar.getFor
  'utils/getGrammarsFolder.js': `export const getGrammarsFolder = ${absent};`,
  // GgufInsights.from without a llama
  'bindings/utils/getLlamaWithoutBackend.js': `export const getLlamaWithoutBackend = ${absent};`,
  // LlamaModel.createDecisionContext
  'evaluator/LlamaDecisionContext/LlamaDecisionContext.js': `export const LlamaDecisionContext = { _create: ${absent} };`,
};

/**
 * What is changed in its reader of GGUF heads, which engines and prompt hosts run at each start. It makes several promises and closures
 * for each value, and a vocabulary has up to 300,000 texts. It asks for 1.5 MB more than it needs each time, most heads are a tenth of
 * that, and copies all that it has for each.
 */
const CHANGED = [
  {
    file: 'gguf/parser/GgufV2Parser.js',
    from: '([arrayType, arrayLength]) => {',
    to: `([arrayType, arrayLength]) => {
      if (arrayType === 8 || arrayType in NUMBERS) return arrayOf(this._fileReader, readOffset, arrayType, Number(arrayLength));`,
    more: `
const NUMBERS = { 4: 'readUInt32LE', 5: 'readInt32LE', 6: 'readFloatLE' };
/** An array of texts or of numbers of 4 bytes. Waits only where the file has to be read. */
async function arrayOf(reader, at, type, length) {
  const has = async (bytes) => {
    if (at.offset + bytes > reader._buffer.length) await reader.ensureHasByteRange(at.offset, bytes);
  };
  const values = [];
  if (type !== 8) {
    await has(4 * length);
    for (let i = 0; i < length; i += 1) values.push(reader._buffer[NUMBERS[type]](at.offset + 4 * i));
    at.moveBy(4 * length);
    return values;
  }
  for (let i = 0; i < length; i += 1) {
    if (at.offset + 8 > reader._buffer.length) await has(8);
    const bytes = 8 + Number(reader._buffer.readBigUInt64LE(at.offset));
    if (at.offset + bytes > reader._buffer.length) await has(bytes);
    values.push(reader._buffer.toString('utf8', at.offset + 8, at.offset + bytes));
    at.moveBy(bytes);
  }
  return values;
}`,
  },
  {
    file: 'gguf/fileReaders/GgufFsFileReader.js',
    from: '= defaultExtraAllocationSize',
    to: '= Math.max(1 << 18, this._buffer.length)',
    more: '',
  },
];

const packageOf = (name) => name.split('/', name.startsWith('@') ? 2 : 1).join('/');

/** Our own imports of packages: inside, a part of node-llama-cpp, or left to Node. */
const packages = {
  name: 'packages',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^[@a-z]/i }, ({ path, importer, kind }) => {
      if (importer.includes('node_modules')) return undefined;
      if (path === 'node-llama-cpp' && kind === 'import-statement') return { path, namespace: 'part' };
      return INSIDE.test(packageOf(path)) ? undefined : { path, external: true };
    });
    onLoad({ filter: /./, namespace: 'part' }, () => ({
      contents: Object.entries(USED)
        .map(([path, names]) => `export { ${names.join(', ')} } from './${NODE_LLAMA_CPP}/dist/${path}';`)
        .join('\n'),
      resolveDir: '.',
    }));
    for (const { file, from, to, more } of CHANGED) {
      onLoad({ filter: new RegExp(`node-llama-cpp/dist/${file.replaceAll('.', '\\.')}$`) }, ({ path }) => {
        const text = readFileSync(path, 'utf8');
        if (!text.includes(from)) throw new Error(`node-llama-cpp's ${file} is another one: see .ci/bundle.mjs`);
        return { contents: text.replace(from, to) + more };
      });
    }
    for (const [path, contents] of Object.entries(LEFT_OUT)) {
      onLoad({ filter: new RegExp(`node-llama-cpp/dist/${path.replaceAll('.', '\\.')}$`) }, () => ({ contents }));
    }
  },
};

/** A module that finds files by its own place does so from where it would be compiled to; one of a package by the package's place. */
const places = {
  name: 'places',
  setup({ onLoad }) {
    onLoad({ filter: /\.(ts|m?js)$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      if (!text.includes('import.meta.url')) return undefined;
      return { contents: placed(text, path), loader: path.endsWith('.ts') ? 'ts' : 'js' };
    });
  },
};
function placed(text, path) {
  const [, package_] = /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path) ?? [];
  const own = JSON.stringify(relative('.', path).replace(/\.ts$/, '.js'));
  const place = package_ === undefined ? `new URL(${own}, ${ROOT}).href` : `import.meta.resolve('${package_}')`;
  return text.replaceAll('import.meta.url', place);
}
/** The URL of dist/: no folder in it has that name. */
const ROOT = "import.meta.url.slice(0, import.meta.url.lastIndexOf('/dist/') + '/dist/'.length)";

/** The written module in place of the one without code. */
const schemas = {
  name: 'schemas',
  setup({ onLoad }) {
    onLoad({ filter: /\/sidecar\/contracts\/written-code\.ts$/ }, ({ path }) => ({
      contents: placed(readFileSync(outputOf(WRITTEN_CODE), 'utf8'), path),
    }));
  },
};

const OPTIONS = {
  outdir: DIST,
  outbase: '.',
  bundle: true,
  // Names stay, for the call sites that are logged.
  minifyWhitespace: true,
  minifySyntax: true,
  platform: 'node',
  mainFields: ['module', 'main'],
  format: 'esm',
  target: 'es2022',
  // Packages in the older format ask for Node's own modules by `require`.
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module';\nconst require = __createRequire(import.meta.url);",
  },
  sourcemap: true,
  sourcesContent: false,
  legalComments: 'none',
  metafile: true,
  write: false,
  logLevel: 'warning',
};

/** Writes all, and removes what an earlier run wrote and this one did not. `before`: what it returned then. Rejects if esbuild fails. */
export async function bundle(before = {}) {
  const missing = Object.keys(LEFT_OUT).filter((path) => !existsSync(join(NODE_LLAMA_CPP, 'dist', path)));
  if (missing.length > 0) throw new Error(`node-llama-cpp has no ${missing.join(', ')}: see .ci/bundle.mjs`);
  const writer = await build({ ...OPTIONS, entryPoints: [WRITER], sourcemap: false, plugins: [packages, places] });
  const code = writer.outputFiles[0].hash;
  if (before.code !== code || ![outputOf(WRITTEN_CODE), ...DATA.map(outputOf)].every((path) => existsSync(path))) {
    writeAll(writer.outputFiles);
    const { stdout, status } = spawnSync(process.execPath, [outputOf(WRITER)], {
      stdio: ['ignore', 'pipe', 'inherit'],
      maxBuffer: 1 << 26,
    });
    if (status !== 0) throw new Error('the code of the schemas was not written');
    const files = JSON.parse(stdout);
    for (const path of [WRITTEN_CODE, ...DATA]) write(outputOf(path), files[path]);
  }
  const plugins = [packages, schemas, places];
  const built = await Promise.all([
    ...GROUPS.map(({ parts, entries }) =>
      build({ ...OPTIONS, entryPoints: entries, plugins, splitting: true, chunkNames: `${parts}/[name]-[hash]` }),
    ),
    build({ ...OPTIONS, entryPoints: WHOLE, plugins }),
    build({ ...OPTIONS, entryPoints: [ENGINE_PACKAGE], plugins }),
  ]);
  for (const { outputFiles } of built) writeAll(outputFiles);
  const product = built.slice(0, -1);
  const inputs = product.flatMap(({ metafile }) => Object.keys(metafile.inputs));
  write(join(DIST, 'sidecar/LICENSES.txt'), licencesOf(inputs));
  const files = [...product.flatMap(namesOf), ...DATA.map(outputOf), join(DIST, 'sidecar/LICENSES.txt')].sort();
  write(PRODUCT_FILES, JSON.stringify(files));
  const outputs = [...built.flatMap(namesOf)];
  for (const path of before.outputs ?? []) if (!outputs.includes(path)) rmSync(path, { force: true });
  return { code, outputs };
}

const namesOf = ({ outputFiles }) => outputFiles.map(({ path }) => relative('.', path));

function outputOf(source) {
  return join(DIST, source.replace(/ts$/, 'js'));
}

function writeAll(outputFiles) {
  for (const { path, contents } of outputFiles) write(path, contents);
}

/** Processes that start meanwhile find whole files. */
function write(path, contents) {
  mkdirSync(dirname(resolve(path)), { recursive: true });
  writeFileSync(`${path}.${process.pid}`, contents);
  renameSync(`${path}.${process.pid}`, path);
}

/** The licences of the packages whose code is in the modules. */
function licencesOf(inputs) {
  const folders = new Set(inputs.flatMap((path) => /.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? []));
  const texts = [...folders].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file === undefined ? `Licence: ${license}` : readFileSync(join(folder, file), 'utf8').trim();
    return `${name} ${version}\n\n${text}\n`;
  });
  return texts.join(`\n${'-'.repeat(80)}\n\n`);
}
