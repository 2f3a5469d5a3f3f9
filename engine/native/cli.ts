/**
 * `node dist/engine/native/cli.js <llama folder> <engine/native>`: exits with 1 and a reason if it cannot be applied.
 */
import { applyNative } from './apply.js';

const [folder = '', source = ''] = process.argv.slice(2);
const applied = applyNative(folder, source);
if (applied.kind === 'unknown') {
  process.stderr.write(
    `engine/native does not fit this node-llama-cpp: ${applied.file} is not as engine/native/apply.ts expects it\n`,
  );
  process.exitCode = 1;
}
