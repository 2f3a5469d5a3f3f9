import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { applyNative } from '../../../engine/native/apply.js';
import { sourceRoot } from '../../support/source-root.js';

const PACKAGE = join(sourceRoot, 'node_modules/node-llama-cpp/llama');
const SOURCE = join(sourceRoot, 'engine/native');
const CLI = fileURLToPath(new URL('../../../engine/native/cli.js', import.meta.url));
const FILES = ['addon/addon.cpp', 'CMakeLists.txt'] as const;

const INIT = '    void raInit(Napi::Object);\n    raInit(exports);\n';
const SETTINGS =
  'set(GGML_OPENMP OFF CACHE BOOL "" FORCE)\nset(LLAMA_BUILD_MTMD ON CACHE BOOL "" FORCE)\n' +
  'set(MTMD_VIDEO OFF CACHE BOOL "" FORCE)\n';
const LINK =
  'get_target_property(RA_MTMD mtmd SOURCES)\nlist(REMOVE_ITEM RA_MTMD mtmd-helper.cpp mtmd-helper-gen.cpp)\n' +
  'set_target_properties(mtmd PROPERTIES SOURCES "${RA_MTMD}")\ntarget_link_libraries(${PROJECT_NAME} mtmd stb)\n';

const FILL = /file\(READ "llama\.cpp.*\n(?:string\(.*\n){2}(?:if [^]*?endif\(\)\n){2}/;

/** A copy of the package’s source as npm installs it. */
function copied(t: Test): { folder: string; read: (file: string) => string } {
  const folder = t.testdir();
  mkdirSync(join(folder, 'addon'));
  for (const file of FILES) {
    copyFileSync(join(PACKAGE, file), join(folder, file));
    // The source of this checkout may have been patched already.
    const patched = readFileSync(join(folder, file), 'utf8');
    const text = [INIT, SETTINGS, LINK, FILL].reduce<string>((text, edit) => text.replace(edit, ''), patched);
    writeFileSync(join(folder, file), text);
  }
  return { folder, read: (file) => readFileSync(join(folder, file), 'utf8') };
}

t.test('the package’s own source is patched, once', async (t) => {
  const { folder, read } = copied(t);
  for (const round of [1, 2]) {
    t.strictSame(applyNative(folder, SOURCE), { kind: 'applied' });
    t.equal(read('addon/addon.cpp').split(INIT).length, 2, `round ${round}`);
    for (const edit of [SETTINGS, LINK, FILL]) t.equal(read('CMakeLists.txt').split(edit).length, 2, `round ${round}`);
  }
  for (const name of ['next-token', 'embeddings', 'vision', 'sandbox']) {
    t.equal(read(`addon/ra-${name}.cpp`), readFileSync(join(SOURCE, `${name}.cpp`), 'utf8'));
  }
});

t.test('another source is refused with an error, and not changed', async (t) => {
  for (const [file, pattern] of [
    ['addon/addon.cpp', 'AddonSampler::init'],
    ['CMakeLists.txt', 'add_subdirectory("llama.cpp")'],
  ] as const) {
    const { folder, read } = copied(t);
    writeFileSync(join(folder, file), read(file).replace(pattern, 'somethingElse'));
    const before = FILES.map(read);
    t.strictSame(applyNative(folder, SOURCE), { kind: 'unknown', file });
    const { status, stderr } = spawnSync(process.execPath, [CLI, folder, SOURCE], { encoding: 'utf8' });
    t.equal(status, 1);
    t.match(stderr, `does not fit this node-llama-cpp: ${file}`);
    t.strictSame(FILES.map(read), before);
  }
});
