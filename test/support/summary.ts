/**
 * The last line of `make test`: `N passed, N failed`. Arguments: the file with tap's output, and tap's exit status.
 * Counts are tap's own, of assertions. Exits non-zero when anything failed, or when tap says so.
 */
import { readFileSync } from 'node:fs';
import { argv, stdout } from 'node:process';
import { summary } from './tap-summary.js';

const [, , file = '', status = '1'] = argv;
const { line, ok } = summary(read(file), Number(status));
stdout.write(`${line}\n`);
process.exitCode = ok ? 0 : 1;

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
