/**
 * A process that claims a spool's lock for each line `claim` of its stdin, and answers with a line: `locked` or `held`.
 * `release` ends the claim and is answered with `released`. It ends with its stdin.
 */
import { createInterface } from 'node:readline';
import { lockDir, type Locked } from '../../sidecar/usage/lock.js';

const [dir = ''] = process.argv.slice(2);
let held: Locked | undefined;

for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'claim') {
    held = await lockDir(dir);
    process.stdout.write(`${held.kind}\n`);
  } else {
    if (held?.kind === 'locked') await held.release();
    process.stdout.write('released\n');
  }
}
