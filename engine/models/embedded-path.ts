/** Child entry: makes the embedded model in the folder given, if it is not there, and prints its path. */
import { ensureEmbeddedModel } from './embedded.js';

const [dir] = process.argv.slice(2);
if (dir === undefined) throw new Error('usage: embedded-path FOLDER');
process.stdout.write(`${await ensureEmbeddedModel(dir)}\n`);
