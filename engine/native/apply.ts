/**
 * Inserts engine/native into the source of node-llama-cpp's addon, for `make engine-native`. Each place must be as in
 * the version that this was written for: otherwise the addon would be built without our code.
 */
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

interface Edit {
  readonly file: string;
  /** Lines that occur exactly once. */
  readonly before: string;
  readonly after: string;
}

const EDITS: readonly Edit[] = [
  {
    file: 'addon/addon.cpp',
    before: '    AddonContextSequenceCheckpoint::init(exports);\n    AddonSampler::init(exports);\n',
    after:
      '    AddonContextSequenceCheckpoint::init(exports);\n    AddonSampler::init(exports);\n    void raInit(Napi::Object);\n    raInit(exports);\n',
  },
  {
    // OpenMP would keep compute threads for each thread that ever decodes; engine/native has one set for all. libmtmd without
    // video: what its decoders cannot read would go to a program on the PATH.
    file: 'CMakeLists.txt',
    before: '\nadd_subdirectory("llama.cpp")\n',
    after:
      '\nset(GGML_OPENMP OFF CACHE BOOL "" FORCE)\nset(LLAMA_BUILD_MTMD ON CACHE BOOL "" FORCE)\n' +
      'set(MTMD_VIDEO OFF CACHE BOOL "" FORCE)\nadd_subdirectory("llama.cpp")\n',
  },
  {
    // Its helpers have decoders for many formats; engine/native/vision.cpp has two.
    file: 'CMakeLists.txt',
    before: 'target_link_libraries(${PROJECT_NAME} "llama-common")\n',
    after:
      'target_link_libraries(${PROJECT_NAME} "llama-common")\nget_target_property(RA_MTMD mtmd SOURCES)\n' +
      'list(REMOVE_ITEM RA_MTMD mtmd-helper.cpp mtmd-helper-gen.cpp)\nset_target_properties(mtmd PROPERTIES SOURCES "${RA_MTMD}")\n' +
      'target_link_libraries(${PROJECT_NAME} mtmd stb)\n',
  },
  {
    // llama.cpp's own source is there only once it is built. A recurrent state that is no number stays none when it is multiplied
    // by 0, and every later sequence would begin with it.
    file: 'CMakeLists.txt',
    before: '\nproject("llama-addon" C CXX)\n',
    after: `
project("llama-addon" C CXX)
file(READ "llama.cpp/src/llama-graph.cpp" RA_GRAPH)
string(REPLACE "ggml_scale_inplace(ctx0, state_zero, 0)" "ggml_fill_inplace(ctx0, state_zero, 0.0f)" RA_FILLED "\${RA_GRAPH}")
string(FIND "\${RA_FILLED}" "ggml_fill_inplace(ctx0, state_zero, 0.0f)" RA_FOUND)
if (RA_FOUND EQUAL -1)
    message(FATAL_ERROR "llama-graph.cpp is not as engine/native/apply.ts expects it")
endif()
if (NOT RA_FILLED STREQUAL RA_GRAPH)
    file(WRITE "llama.cpp/src/llama-graph.cpp" "\${RA_FILLED}")
endif()
`,
  },
];

export type Applied =
  | { readonly kind: 'applied' }
  /** `file` is not as expected; nothing was changed. */
  | { readonly kind: 'unknown'; readonly file: string };

/** `folder`: the package's `llama`. `source`: engine/native, whose C++ files are copied. May be called again. Throws file system errors. */
export function applyNative(folder: string, source: string): Applied {
  const texts = new Map<string, string>();
  for (const { file, before, after } of EDITS) {
    const text = texts.get(file) ?? readFileSync(join(folder, file), 'utf8');
    if (count(text, after) === 1) continue;
    if (count(text, before) !== 1) return { kind: 'unknown', file };
    texts.set(
      file,
      text.replace(before, () => after),
    );
  }
  for (const [file, text] of texts) writeFileSync(join(folder, file), text);
  for (const name of readdirSync(source)) {
    if (name.endsWith('.cpp')) copyFileSync(join(source, name), join(folder, 'addon', `ra-${name}`));
  }
  return { kind: 'applied' };
}

function count(text: string, part: string): number {
  return text.split(part).length - 1;
}
