/**
 * `make test` and `make check`: runs tap with the given options and shows a digest that ends with the counts. Test
 * files that can share a process do (test-groups.ts), except with coverage, which tap counts for each file. Without a
 * named file: all.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { argv, stdout } from 'node:process';
import { createInterface } from 'node:readline';
import { entriesFor } from './group-entries.js';
import { TapDigest } from './tap-digest.js';

const given = argv.slice(2);
const options = given.filter((arg) => arg.startsWith('--'));
const named = given.filter((arg) => !arg.startsWith('--'));
const all = (): string[] =>
  readdirSync('dist/test', { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.test.js'))
    .map((path) => `dist/test/${path}`);
const files = options.includes('--disable-coverage') ? entriesFor(named.length > 0 ? named : all()) : named;

const digest = new TapDigest();
const tap = spawn('npx', ['tap', '--reporter=tap', ...options, ...files], { stdio: ['ignore', 'pipe', 'inherit'] });
const closed = once(tap, 'close');
for await (const line of createInterface({ input: tap.stdout, crlfDelay: Infinity })) {
  if (digest.shows(line)) stdout.write(`${line}\n`);
}
await closed;
const { line, ok } = digest.verdict(tap.exitCode ?? 1);
stdout.write(`${line}\n`);
process.exitCode = ok ? 0 : 1;
