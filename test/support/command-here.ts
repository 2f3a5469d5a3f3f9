/** Runs `ra-sidecar` in this process: a process of its own takes half a second of processor time. */
import { Writable } from 'node:stream';
import { runCommand } from '../../sidecar/commands/command-line.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import type { CommandResult } from './cli.js';

/** Variables to be restored when the running command has ended. */
let replaced: ReadonlyMap<string, string | undefined> | undefined;

/**
 * Runs a command other than `serve` to its end. `environment` replaces variables of this process while it runs, also
 * for the children that it starts, so only one command runs at a time.
 */
export async function runHere(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<CommandResult> {
  if (replaced) throw new Error('another command is running, with another environment');
  replaced = new Map(Object.keys(environment).map((name) => [name, process.env[name]]));
  Object.assign(process.env, environment);
  let [printed, stderr] = ['', ''];
  const stdout = new Writable({
    write: (part, _, done) => {
      printed += String(part);
      done();
    },
  });
  try {
    const code = await runCommand(args, {
      out: (text) => void (printed += text),
      err: (text) => void (stderr += text),
      stdout,
      clock: systemClock,
      terminal: { write: () => true },
      serve: () => Promise.reject(new Error('serve needs a process of its own')),
    });
    return { code, stdout: printed, stderr };
  } finally {
    for (const [name, value] of replaced) {
      if (value === undefined) Reflect.deleteProperty(process.env, name);
      else process.env[name] = value;
    }
    replaced = undefined;
  }
}
