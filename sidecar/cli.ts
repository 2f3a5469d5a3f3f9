#!/usr/bin/env node
/**
 * The command line: selects the command, loads its configuration and sets the exit code. commands/command-table.ts
 * describes each command. Commands are loaded when they run: `doctor` must work, and report the cause, even if `serve`
 * cannot be loaded.
 */
import { systemClock } from './lib/clock.js';
import { EXIT } from './commands/command.js';
import { helpOf, orUsage } from './commands/help.js';
import type { Io } from './commands/io.js';
import { COMMANDS } from './commands/command-table.js';
import { loadConfig, type Config } from './config/config.js';
import { openLog } from './telemetry/logger.js';

type Args = readonly string[];

/** Runs with a validated configuration. */
type Configured = (config: Config, args: Args, hints: readonly string[]) => Promise<number>;

const io: Io = { out, say, clock: systemClock, terminal: process.stderr };

const CONFIGURED: Readonly<Record<string, Configured>> = {
  serve: runServe,
  keys: async (config, args) => (await import('./commands/keys.js')).keys(config, args, io),
  usage: async (config, args) =>
    (await import('./commands/usage.js')).usage(config, args, { out: process.stdout, say }),
  models: async (config, args) => (await import('./commands/models.js')).models(config, args, io),
  bench: async (config, args) => (await import('./commands/bench.js')).bench(config, args, io),
  doctor: async (config, args, hints) => (await import('./commands/doctor.js')).doctor(config, args, hints, io),
};

const BARE: Readonly<Record<string, (args: Args) => Promise<number>>> = {
  'check-config': (args) =>
    orUsage('check-config', io, async () => (await import('./commands/check-config.js')).checkConfig(args, io)),
  completion: (args) =>
    orUsage('completion', io, async () => (await import('./commands/completion.js')).completion(args, io)),
};

async function main(args: Args): Promise<number> {
  const [name = '', ...rest] = args;
  if (asksForHelp(args)) {
    out(helpOf(args.slice(0, 2).join(' ')));
    return EXIT.done;
  }
  if (!Object.hasOwn(COMMANDS, name)) {
    say(helpOf(''));
    return EXIT.usage;
  }
  try {
    const bare = BARE[name];
    if (bare) return await bare(rest);
    return await runConfigured(name, rest);
  } catch (error) {
    say(`ra-sidecar: ${error instanceof Error ? error.message : 'failed'}\n`);
    return EXIT.failed;
  }
}

/** Options end at `--`. */
function asksForHelp(args: Args): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end < 0 ? args.length : end).some((argument) => argument === '--help' || argument === '-h');
}

async function runConfigured(name: string, args: Args): Promise<number> {
  const loaded = loadConfig();
  if (loaded.kind === 'invalid') {
    say(`${loaded.line}\n`);
    const others = loaded.lines.length - 1;
    if (others > 0) say(`and ${others} more: ra-sidecar check-config\n`);
    return EXIT.failed;
  }
  return await (CONFIGURED[name]?.(loaded.config, args, loaded.hints) ?? EXIT.usage);
}

async function runServe(config: Config, args: Args, hints: readonly string[]): Promise<number> {
  if (args.length > 0) {
    say(helpOf('serve'));
    return EXIT.usage;
  }
  const { serve } = await import('./commands/serve.js');
  const logging = openLog(config.log.level, undefined, (code) =>
    say(`ra-sidecar: the log cannot be written to stdout (${code}); its lines are lost until then\n`),
  );
  const { log } = logging;
  // Node would print the error's message, which may quote a request.
  process.on('uncaughtException', (fault) => {
    log.error('crashed', { fault });
    void logging.close().then(() => process.exit(EXIT.failed));
  });
  for (const reason of hints) log.warn('config', { reason });
  try {
    // Messages for people go to stderr: stdout is the log, one JSON object a line.
    return await serve(config, log, (line) => say(`${line}\n`));
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
process.exit(await ended(await main(process.argv.slice(2))));
