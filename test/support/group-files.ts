/**
 * Runs several test files in one process, one after the other. A process and the modules that many files import cost more
 * processor time than most unit tests take.
 */
import { dirname, resolve } from 'node:path';
import { cpuUsage, env } from 'node:process';
import { pathToFileURL } from 'node:url';
import { usageOf } from './cpu-group.js';
import { root, runFiles, type Subtest, type TestFile } from './runtime.js';
import { shareLanes } from './shared-lanes.js';
import { standInForTap, writeTapModule } from './tap-module.js';

let current = root;

/**
 * Runs the files that the variable TEST_FILES lists as JSON. One that fails to load has failed. At its limit the test that
 * runs fails, and the next file begins.
 */
async function runGroup(): Promise<void> {
  const files = JSON.parse(env['TEST_FILES'] ?? '[]') as readonly TestFile[];
  // Not for the processes that tests start.
  delete env['TEST_FILES'];
  if (files.length > 1) shareLanes(root, 'common');
  writeTapModule();
  standInForTap(() => current);
  await runFiles(files, load, usedS);
}

async function load(file: string, t: Subtest): Promise<void> {
  current = t;
  await import(pathToFileURL(resolve(file)).href);
}

/** Seconds of processor time so far, of this process and of all that it started where a control group counts them. */
function usedS(): number {
  const group = env['GROUP'] ?? '';
  if (group !== '') return usageOf(dirname(group));
  const { user, system } = cpuUsage();
  return (user + system) / 1e6;
}

// Not awaited: the files import this module.
if (env['TEST_FILES'] !== undefined) void runGroup();
