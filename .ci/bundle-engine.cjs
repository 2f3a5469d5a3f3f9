// Writes the part of node-llama-cpp that an engine uses as one module, dist/engine/bundled/node-llama-cpp-VERSION.js: to import
// the package itself loads 450 modules, most of them for chats, downloads and compilations, and takes 0.36 s of processor time
// at each start of an engine; this file takes 0.03 s. engine/llama/package.ts loads it. Usage, after tsc: node .ci/bundle-engine.cjs
const { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } = require('node:fs');
const { join } = require('node:path');
const { build } = require('esbuild');

const FOLDER = 'dist/engine/bundled';
const PACKAGE = 'node_modules/node-llama-cpp';

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
/** Modules that are left out with all that only they import. In their place is what throws once it is called. */
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

const { version } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8'));
const missing = Object.keys(LEFT_OUT).filter((path) => !existsSync(join(PACKAGE, 'dist', path)));
if (missing.length > 0)
  throw new Error(`node-llama-cpp ${version} has no ${missing.join(', ')}: see .ci/bundle-engine.cjs`);

const leaveOut = {
  name: 'leave out',
  setup({ onLoad }) {
    for (const [path, contents] of Object.entries(LEFT_OUT)) {
      onLoad({ filter: new RegExp(`node-llama-cpp/dist/${path.replaceAll('.', '\\.')}$`) }, () => ({ contents }));
    }
  },
};

const bundled = build({
  stdin: {
    contents: Object.entries(USED)
      .map(([path, names]) => `export { ${names.join(', ')} } from './${PACKAGE}/dist/${path}';`)
      .join('\n'),
    resolveDir: '.',
  },
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  plugins: [leaveOut],
  // Packages in the older format ask for Node's own modules by `require`. The engine's own modules ask where they are, to find
  // what lies beside the package's first module.
  banner: {
    js: `import { createRequire } from 'node:module';
const require = createRequire(import.meta.url);
const packageUrl = import.meta.resolve('node-llama-cpp');`,
  },
  define: { 'import.meta.url': 'packageUrl' },
  legalComments: 'none',
  metafile: true,
  write: false,
  logLevel: 'warning',
});

/** The licences of the packages whose code is in the bundle. */
function licencesOf(metafile) {
  const packages = new Set(
    Object.keys(metafile.inputs).flatMap((path) => /.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? []),
  );
  return [...packages].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file === undefined ? `Licence: ${license}` : readFileSync(join(folder, file), 'utf8').trim();
    return `${name} ${version}\n\n${text}\n`;
  });
}

function write({ outputFiles, metafile }) {
  mkdirSync(FOLDER, { recursive: true });
  const files = {
    [`node-llama-cpp-${version}.js`]: outputFiles[0].text,
    'LICENSES.txt': licencesOf(metafile).join(`\n${'-'.repeat(80)}\n\n`),
  };
  for (const [name, text] of Object.entries(files)) {
    // Processes that start meanwhile find whole files.
    writeFileSync(join(FOLDER, `${name}.${process.pid}`), text);
    renameSync(join(FOLDER, `${name}.${process.pid}`), join(FOLDER, name));
  }
  for (const name of readdirSync(FOLDER)) if (!(name in files)) rmSync(join(FOLDER, name), { force: true });
}

// A rejection ends the build, with what esbuild has printed.
bundled.then(write);
