import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const CLI = fileURLToPath(new URL('../../sidecar/cli.js', import.meta.url));

/** Long enough for a loaded machine, ms; a command that takes longer is killed. */
const COMMAND_MS = 60_000;

/** The most output of a command: an export of a long soak has 20,000 records. */
const MOST_PRINTED_BYTES = 256 * 1024 * 1024;

export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `ra-sidecar` with these arguments to its end, in a process, with `environment` over this process’s. */
export function runCli(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<CommandResult> {
  return new Promise((resolve) => {
    const options = { env: { ...process.env, ...environment }, timeout: COMMAND_MS, maxBuffer: MOST_PRINTED_BYTES };
    const child = execFile(process.execPath, [CLI, ...args], options, (_, stdout, stderr) =>
      resolve({ code: child.exitCode, stdout, stderr }),
    );
  });
}
