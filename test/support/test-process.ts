/**
 * Runs one entry of the tests, a file or a group of files, as a process. Not by tap's own runner: that preloads hooks
 * for coverage and for mocked modules into each process and parses all that it prints, which takes as much processor
 * time as most unit tests do. `make coverage` uses tap's runner.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { env, execPath } from 'node:process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { CpuGroup } from './cpu-group.js';
import { descendantsOf, signalProcess } from './processes.js';
import type { TestFile } from './runtime.js';
import { TapDigest, type Verdict } from './tap-digest.js';

const RUNNER = fileURLToPath(new URL('./group-files.js', import.meta.url));

export interface TestRun extends Verdict {
  /** What a reader needs of its output. */
  readonly shown: readonly string[];
  /** Time by the clock. */
  readonly wallS: number;
  /** Processor time of the process and of all that it started. */
  readonly cpuS: number;
}

/** A process that does not end by itself at its limit is killed after this time. */
const GRACE_S = 30;

/** A process whose tests have ended is killed after this time: what a test has left keeps it alive. */
const LEAVE_S = 60;

/** What a shell exits with when its command was ended by SIGKILL. */
const KILLED = 128 + 9;

/** What is kept of stderr, characters. */
const STDERR_KEPT = 20_000;

/** Seconds that the shell’s `times` prints, as in `0m12.340s`. */
const seconds = (text: string): number => {
  const [, minutes = '0', rest = '0'] = /^(\d+)m([\d.]+)s$/.exec(text) ?? [];
  return Number(minutes) * 60 + Number(rest);
};

/**
 * Runs test files in one process. `timeoutS`: it is killed that long and a grace after its start. Never rejects for what the tests do.
 */
export async function runTestProcess(
  files: readonly TestFile[],
  timeoutS: number,
  { graceS = GRACE_S, leaveS = LEAVE_S } = {},
): Promise<TestRun> {
  const from = performance.now();
  // The second line of `times` is what the processes took that the shell, and they in turn, waited for.
  const script = 'test -z "$GROUP" || echo $$ > "$GROUP"; "$@"; status=$?; times >&3; exit $status';
  const group = CpuGroup.make();
  const child = spawn('sh', ['-c', script, 'sh', execPath, RUNNER], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    env: { ...env, TEST_FILES: JSON.stringify(files), GROUP: group?.members ?? '' },
  });
  const closed = once(child, 'close');
  const killAfter = (s: number): NodeJS.Timeout =>
    setTimeout(() => {
      // All but the shell, which prints the times: what a hung test has started would work on beside the next one.
      const all = new Set([...(group?.pids ?? []), ...descendantsOf(child.pid ?? 0)]);
      for (const pid of all) if (pid !== child.pid) signalProcess(pid, 'SIGKILL');
    }, s * 1000);
  let kill = killAfter(timeoutS + graceS);
  let [times, printed] = ['', ''];
  const [, output, errors, timed] = child.stdio;
  if (!output || !errors || !timed) throw new Error('no pipes');
  timed.on('data', (bytes: Buffer) => (times += bytes.toString()));
  errors.on('data', (bytes: Buffer) => (printed = (printed + bytes.toString()).slice(-STDERR_KEPT)));
  const digest = new TapDigest();
  const shown: string[] = [];
  let leaves = false;
  for await (const line of createInterface({ input: output, crlfDelay: Infinity })) {
    if (digest.shows(line)) shown.push(line);
    if (leaves || !digest.complete) continue;
    leaves = true;
    clearTimeout(kill);
    kill = killAfter(leaveS);
  }
  await closed;
  clearTimeout(kill);
  const verdict = digest.verdict(child.exitCode ?? 1);
  if (leaves && child.exitCode === KILLED) shown.push(`killed: ${leaveS} s after its tests it had not ended`);
  if (!verdict.ok) shown.push(...printed.split('\n'));
  const ofChildren = (times.split('\n')[1] ?? '').split(' ');
  const cpuS = group?.close() ?? ofChildren.reduce((sum, part) => sum + seconds(part), 0);
  return { ...verdict, shown, wallS: (performance.now() - from) / 1000, cpuS };
}
