/**
 * Child entry: makes the embedded model in the folder given, if it is not there yet, and prints its path. With `look` it makes
 * nothing, and prints nothing when there is none.
 */
import { ensureEmbeddedModel, findEmbeddedModel } from './embedded.js';

const [dir, how] = process.argv.slice(2);
if (dir === undefined) throw new Error('usage: embedded-path FOLDER [look]');
const path = how === 'look' ? await findEmbeddedModel(dir) : await ensureEmbeddedModel(dir);
if (path !== undefined) process.stdout.write(`${path}\n`);
