/**
 * `make bench`: runs all benches whose results are not of the present code.
 *
 *     node dist/bench/run/cli.js [--list] [--since COMMIT] [--any-machine] [PATTERN]
 *
 * `--list` only writes what is due and how long it takes: benches of which a file that they depend on has changed, not only in
 * comments. `--since` also accepts results of COMMIT or later: of one round, if something was changed in it that the figures do not
 * depend on.
 * `--any-machine` also accepts results of another processor: of a round that goes on elsewhere. PATTERN is a regular expression on
 * the commands.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, renameSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { signalGroup } from '../../test/support/processes.js';
import { installedAddon, NATIVE_ADDON } from '../support/addon.js';
import { filesOf } from '../support/bench-files.js';
import { BUSY, foreignCores } from '../support/busy.js';
import { codeCommit, isSince } from '../support/commit.js';
import { processor } from '../support/machine.js';
import { PLAN, sourceOf } from './plan.js';
import { isSameCode } from './present-code.js';
import { listed, runPlan, type Environment, type Recorded } from './run.js';

/** From dist/bench/run. */
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
/** Where the native addon waits while benches run on the prebuilt one. */
const ASIDE = `${NATIVE_ADDON}.aside`;

/** One look at other work, ms, and looks at most before a bench is given up: half an hour. */
const LOOK_MS = 10_000;
const LOOKS = 180;

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    list: { type: 'boolean', default: false },
    since: { type: 'string' },
    'any-machine': { type: 'boolean', default: false },
  },
});
const { since } = values;
const pattern = new RegExp(positionals[0] ?? '');
const plan = PLAN.filter(({ command }) => pattern.test(command));

const write = (line: string): void => void process.stdout.write(`${line}\n`);

const bed: Environment = {
  recorded: (name) => {
    try {
      return JSON.parse(readFileSync(`${ROOT}bench/results/${name}.json`, 'utf8')) as Recorded;
    } catch {
      return undefined;
    }
  },
  isCurrent: (commit, bench) =>
    isSameCode(commit, filesOf(sourceOf(bench)), ROOT) || (since !== undefined && isSince(commit, since)),
  present: { node: process.version, ...(values['any-machine'] ? {} : { machine: processor() }) },
  addon: installedAddon,
  useAddon: (addon) => {
    if (addon === 'prebuilt') renameSync(NATIVE_ADDON, ASIDE);
    else if (existsSync(ASIDE)) renameSync(ASIDE, NATIVE_ADDON);
    else return spawnSync('make', ['engine-native'], { cwd: ROOT, stdio: 'inherit' }).status === 0;
    return true;
  },
  quiet: async () => {
    for (let look = 0; look < LOOKS; look += 1) if ((await foreignCores(LOOK_MS)) <= BUSY) return true;
    return false;
  },
  run: async (command, limitMs) => {
    // A process group of its own, so that what the bench has started ends with it.
    const shell = ['-c', `exec node dist/bench/${command}`];
    const child = spawn('sh', shell, { cwd: ROOT, stdio: ['ignore', 'inherit', 'inherit'], detached: true });
    const group = child.pid;
    if (group === undefined) return null;
    const end = (): void => signalGroup(group, 'SIGKILL');
    const interrupted = (): void => {
      end();
      process.exit(1);
    };
    const limit = setTimeout(end, limitMs);
    for (const signal of SIGNALS) process.once(signal, interrupted);
    const [code] = (await once(child, 'exit')) as [number | null];
    for (const signal of SIGNALS) process.off(signal, interrupted);
    clearTimeout(limit);
    // One that fails by itself leaves its servers, which would take the cores of the next.
    end();
    return code;
  },
  write,
};

if (values.list) {
  for (const line of listed(plan, bed)) write(line);
} else if (codeCommit().includes(' ')) {
  write('the code differs from its commit: commit first, since each result names the commit that it is of');
  process.exitCode = 1;
} else {
  const { done, current, failed } = await runPlan(plan, bed);
  if (existsSync(ASIDE)) renameSync(ASIDE, NATIVE_ADDON);
  write(`${done.length} run, ${current.length} were of this code, ${failed.length} failed`);
  for (const line of failed) write(line);
  if (failed.length > 0) process.exitCode = 1;
}
