/** The vision process's system call filter compiles for arm64, where `arm64.e2e.ts` runs the engine but loads no image. Needs a cross compiler. */
import { spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';

const headers = dirname(fileURLToPath(import.meta.resolve('node-addon-api')));

t.test('engine/native/sandbox.cpp, with its filter', async (t) => {
  const include = [`-I${headers}`, `-I${sourceRoot}/node_modules/node-api-headers/include`];
  const compile = (...more: string[]): ReturnType<typeof spawnSync> =>
    spawnSync(
      'aarch64-linux-gnu-g++',
      [
        '-std=c++17',
        '-Wall',
        '-Wextra',
        '-Wno-unused-parameter',
        ...include,
        ...more,
        `${sourceRoot}/engine/native/sandbox.cpp`,
      ],
      { encoding: 'utf8', maxBuffer: 1 << 28 },
    );
  const checked = compile('-fsyntax-only', '-Werror');
  t.equal(checked.status, 0, String(checked.stderr).slice(0, 2000));
  const macros = compile('-E', '-dM');
  t.match(String(macros.stdout), /^#define RA_SECCOMP 1$/m, 'the filter is among what was compiled');
});
