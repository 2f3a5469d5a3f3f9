/** `make test` and `make check`: runs tap with the arguments given and shows a digest that ends in the counts. */
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
const { line, ok } = digest.verdict(tap.exitCode ?? 1);
stdout.write(`${line}\n`);
process.exitCode = ok ? 0 : 1;
