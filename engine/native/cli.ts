/**
 * `node dist/engine/native/cli.js build`: compiles the addons of engine/native into engine/native/bin. `… apply <llama folder>`: makes
 * node-llama-cpp's source ready for `make engine-native`. Run in the repository; exits with 1 and a reason on failure.
 */
import { join } from 'node:path';
import { applySettings } from './apply.js';
import { buildNative } from './build.js';

const [task, folder = ''] = process.argv.slice(2);
if (task === 'build') {
  await buildNative(process.cwd(), join(process.cwd(), 'engine/native/bin'));
} else {
  const applied = applySettings(folder);
  if (applied.kind === 'unknown') {
    process.stderr.write(
      `engine/native does not fit this node-llama-cpp: ${applied.file} is not as engine/native/apply.ts expects it\n`,
    );
    process.exitCode = 1;
  }
}
