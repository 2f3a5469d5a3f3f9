/** `make run` as a shell, a CI job or a supervisor ends it: SIGTERM to make alone, or to its whole process group. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, readdir, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import t, { type Test } from 'tap';
import { ENDLESS, endsWell, OpenStream } from '../support/open-stream.js';
import { ENGINE } from '../support/process-gate.js';
import { groupMembers, signalGroup, signalProcess } from '../support/processes.js';
import { sourceRoot } from '../support/source-root.js';

interface Run {
  readonly child: ChildProcess;
  /** Resolves with the whole output once this was printed. */
  readonly printed: (text: string) => Promise<string>;
  /** The whole output. */
  readonly ended: Promise<string>;
}

/** A command in its own process group, with the sidecar’s defaults except for what two on one machine cannot share. */
async function run(t: Test, command: string, ...args: readonly string[]): Promise<Run> {
  const dataDir = await mkdtemp(join(tmpdir(), 'ra-make-'));
  t.teardown(() => rm(dataDir, { recursive: true, force: true }));
  const child = spawn(command, args, {
    cwd: sourceRoot,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      RA_DATA_DIR: dataDir,
      RA_LISTEN_PORT: '0',
      RA_OPERATORS_PORT: '0',
      RA_STREAM_KEEP_ALIVE_MS: '100',
    },
  });
  let output = '';
  let check = (): void => undefined;
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      check();
    });
  }
  const ended = new Promise<string>((resolve) => child.once('close', () => resolve(output)));
  t.teardown(() => signalGroup(child.pid ?? 0, 'SIGKILL'));
  const printed = (text: string): Promise<string> =>
    new Promise((resolve) => {
      check = (): void => {
        if (output.includes(text)) resolve(output);
      };
      check();
    });
  return { child, printed, ended };
}

/** The build exists: only the recipe runs, without npm and the compiler. */
const MAKE_RUN = ['make', '-o', 'product', 'run'] as const;

/**
 * The sidecar takes two signals within 1 s for one stop. A try in which they were sent further apart than half of that is
 * repeated.
 */
const SIGNALS_MS = 500;
/** Tries, since a busy machine may delay the second signal. */
const MOST_TRIES = 10;

async function drains(t: Test, command: string, ...args: readonly string[]): Promise<void> {
  for (let i = 0; i < MOST_TRIES; i += 1) if (await drained(t, await run(t, command, ...args))) return;
  t.fail('the machine is too busy');
}

/** A stream that runs when the child gets SIGTERM is served to its end. False: the signals took too long. */
async function drained(t: Test, { child, printed, ended }: Run): Promise<boolean> {
  const output = await printed('"messages"');
  const [, port] = /is ready at http:\/\/127\.0\.0\.1:(\d+)/.exec(output) ?? [];
  const [key = ''] = /ra-dev-[\w-]+/.exec(output) ?? [];
  // Stopped, they cannot finish before the drain has begun.
  const engines = groupMembers(child.pid ?? 0).filter(({ command }) => command.includes(ENGINE));
  for (const { pid } of engines) process.kill(pid, 'SIGSTOP');
  const stream = await OpenStream.begin({ port: Number(port), key }, { ...ENDLESS, max_tokens: 20 }, ': keep-alive');
  const from = performance.now();
  child.kill('SIGTERM');
  // The signal that make forwards may arrive with the group’s or some ms later. Here it arrives later for certain.
  await printed('"event":"draining"');
  signalGroup(child.pid ?? 0, 'SIGTERM');
  const ms = performance.now() - from;
  // A second stop has ended them.
  for (const { pid } of engines) signalProcess(pid, 'SIGCONT');
  const response = await stream.response.catch(() => undefined);
  await ended;
  if (ms > SIGNALS_MS) return false;
  if (response === undefined) t.fail('the stream was cut');
  else endsWell(t, response);
  return true;
}

t.test('timeout ends make run with a drain', async (t) => {
  // The group gets SIGTERM and make forwards one too. timeout gets the signal that it would send itself at its end.
  await drains(t, 'timeout', '-s', 'TERM', '300', ...MAKE_RUN);
});

/** Names of C and C++ compilers, and of what builds with them. */
const COMPILERS = /(^|-)(cc|gcc|c\+\+|g\+\+|cpp|clang|clang\+\+|cmake|ninja|ld)(-[\d.]+)?$/;

/** A PATH with all programs of this one but the compilers. */
async function withoutCompilers(t: Test): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-path-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const linked = new Set<string>();
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    for (const name of await readdir(folder).catch(() => [])) {
      if (COMPILERS.test(name) || linked.has(name)) continue;
      linked.add(name);
      await symlink(join(folder, name), join(dir, name));
    }
  }
  return dir;
}

t.test('make run serves where there is no compiler, and SIGTERM to make alone ends it with a drain', async (t) => {
  const path = await withoutCompilers(t);
  await drains(t, 'env', `PATH=${path}`, 'sh', '-c', '! command -v cc g++ cmake && exec make run');
});
