/**
 * Changes the settings of node-llama-cpp's own source for `make engine-native`, which compiles llama.cpp for this machine. Each
 * place must be as in the version that this was written for. Our own C++ is not in it: see build.ts.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

interface Edit {
  /** Lines that occur exactly once. */
  readonly before: string;
  readonly after: string;
}

const FILE = 'CMakeLists.txt';

const EDITS: readonly Edit[] = [
  {
    // OpenMP would keep compute threads for each thread that ever decodes; engine/native has one set for all.
    before: '\nadd_subdirectory("llama.cpp")\n',
    after: '\nset(GGML_OPENMP OFF CACHE BOOL "" FORCE)\nadd_subdirectory("llama.cpp")\n',
  },
  {
    // llama.cpp's own source is there only once it is built. A recurrent state that is no number stays none when it is multiplied
    // by 0, and every later sequence would begin with it.
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

/** `folder`: the package's `llama`. May be called again. Throws file system errors. */
export function applySettings(folder: string): Applied {
  const path = join(folder, FILE);
  let text = readFileSync(path, 'utf8');
  for (const { before, after } of EDITS) {
    if (count(text, after) === 1) continue;
    if (count(text, before) !== 1) return { kind: 'unknown', file: FILE };
    text = text.replace(before, () => after);
  }
  writeFileSync(path, text);
  return { kind: 'applied' };
}

function count(text: string, part: string): number {
  return text.split(part).length - 1;
}
