/** Starts of the embedded model as a user makes them. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import type { Test } from 'tap';
import { signalGroup } from './processes.js';

/**
 * Runs a command that serves the embedded model, with the defaults except for ports, until SIGTERM; the two commands that it prints
 * work. `environment` is all that it gets besides.
 */
export async function servesSeedling(
  t: Test,
  [command, ...args]: readonly [string, ...string[]],
  cwd: string,
  environment: NodeJS.ProcessEnv,
): Promise<void> {
  const child = spawn(command, args, {
    cwd,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...environment, RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' },
  });
  t.teardown(() => signalGroup(child.pid ?? 0, 'SIGKILL'));
  const [chat, decision] = await printedCommands(child.stderr);
  t.match(chat, /seedling/i);
  t.match(chat, /data: \[DONE\]/);
  t.match(decision, /"refund"/);
  const ended = once(child, 'exit');
  signalGroup(child.pid ?? 0, 'SIGTERM');
  await ended;
}

/**
 * Reads a starting sidecar’s output until its two commands are there, runs them in a shell, and returns their outputs: of a streamed
 * chat and of a decision. Throws if the output ends before, if they are not two, or if one fails.
 */
async function printedCommands(output: Readable): Promise<[chat: string, decision: string]> {
  output.setEncoding('utf8');
  let printed = '';
  const complete = new Promise<void>((resolve, reject) => {
    output.on('data', (text: string) => {
      printed += text;
      if (/^curl .*"questions".*\n/m.test(printed)) resolve();
    });
    output.once('end', () => reject(new Error(`it ended without two commands: ${printed}`)));
  });
  await complete;
  const [chat, decision, ...more] = printed.split('\n').filter((line) => line.startsWith('curl '));
  if (chat === undefined || decision === undefined || more.length > 0) throw new Error(`not two commands: ${printed}`);
  const run = (line: string): string => execFileSync('sh', ['-c', line], { encoding: 'utf8', stdio: 'pipe' });
  return [run(chat), run(decision)];
}
