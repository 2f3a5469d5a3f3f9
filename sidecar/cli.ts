#!/usr/bin/env node
/** The program: its streams, its exit code, and what ends it. commands/command-line.ts runs the command. */
import { systemClock } from './lib/clock.js';
import { EXIT } from './commands/command.js';
import { runCommand } from './commands/command-line.js';
import { endureHangUp } from './commands/hang-up.js';
import type { LoadedConfig } from './config/config.js';
import { openLog, quietConsole } from './telemetry/logger.js';

async function runServe({ config, hints, source }: LoadedConfig): Promise<number> {
  const logging = openLog(config.log.level, undefined, (code) =>
    say(`ra-sidecar: the log cannot be written to stdout (${code}); its lines are lost until then\n`),
  );
  const { log } = logging;
  quietConsole(log);
  // Node would print the error's message, which may quote a request.
  process.on('uncaughtException', (fault) => {
    log.error('crashed', { fault });
    void logging.close().then(() => process.exit(EXIT.failed));
  });
  const { serve } = await import('./commands/serve.js');
  for (const reason of hints) log.warn('config', { reason });
  try {
    // Messages for people go to stderr: stdout is the log, one JSON object a line.
    return await serve(config, source, log, (line) => say(`${line}\n`));
  } finally {
    await logging.close();
  }
}

/** Why stdout could not be written by a command that prints to it. */
let unprinted: string | undefined;

function out(text: string): void {
  process.stdout.write(text, (error) => {
    if (error) unprinted ??= (error as NodeJS.ErrnoException).code ?? 'unknown';
  });
}

/** The exit code: 1 if the result could not be printed. A reader that closes early is no failure. */
async function ended(code: number): Promise<number> {
  // The result of a write arrives in a later turn.
  await new Promise((resolve) => setImmediate(resolve));
  if (unprinted === undefined || unprinted === 'EPIPE') return code;
  say(`ra-sidecar: stdout cannot be written (${unprinted})\n`);
  return EXIT.failed;
}

function say(text: string): void {
  process.stderr.write(text);
}

// A failed write must not end the service, which it would without a listener.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);
const args = process.argv.slice(2);
if (args[0] === 'serve') endureHangUp();
const code = await runCommand(args, {
  out,
  err: say,
  stdout: process.stdout,
  clock: systemClock,
  terminal: process.stderr,
  serve: runServe,
});
process.exit(await ended(code));
