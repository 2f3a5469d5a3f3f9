/** `make coverage`: runs each test file in a process of its own by tap's runner, and prints a digest with the table. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { argv, stdout } from 'node:process';
import { createInterface } from 'node:readline';
import { TapDigest } from './tap-digest.js';

const digest = new TapDigest();
const tap = spawn('npx', ['tap', '--reporter=tap', ...argv.slice(2)], { stdio: ['ignore', 'pipe', 'inherit'] });
const closed = once(tap, 'close');
for await (const line of createInterface({ input: tap.stdout, crlfDelay: Infinity })) {
  if (digest.shows(line)) stdout.write(`${line}\n`);
}
await closed;
const { passed, failed, ok } = digest.verdict(tap.exitCode ?? 1);
stdout.write(`${passed} passed, ${failed} failed\n`);
process.exitCode = ok ? 0 : 1;
