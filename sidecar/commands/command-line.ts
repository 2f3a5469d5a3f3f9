/**
 * The command line without its process: selects the command, loads its configuration and returns the exit code.
 * command-table.ts describes each command. Commands are loaded when they run: `doctor` must work, and report the cause,
 * even if `serve` cannot be loaded.
 */
import type { Writable } from 'node:stream';
import { loadConfig, type LoadedConfig } from '../config/config.js';
import { VERSION } from '../lib/version.js';
import { EXIT, parsed, UsageError } from './command.js';
import { COMMANDS } from './command-table.js';
import { helpOf, orUsage } from './help.js';
import type { Io } from './io.js';

type Args = readonly string[];

/** Runs with a validated configuration. */
type Configured = (loaded: LoadedConfig, args: Args, caller: CommandCaller) => Promise<number>;

/** What the process that runs a command passes to it. */
export interface CommandCaller extends Io {
  /** Where `usage` streams its result: stdout. */
  readonly stdout: Writable;
  /** Runs the sidecar until it ends; it uses the process's signals. */
  readonly serve: (loaded: LoadedConfig) => Promise<number>;
}

const CONFIGURED: Readonly<Record<string, Configured>> = {
  serve: runServe,
  keys: async ({ config, source }, args, io) => (await import('./keys.js')).keys({ ...config, source }, args, io),
  usage: async ({ config }, args, { stdout, err: say }) =>
    (await import('./usage.js')).usage(config, args, { out: stdout, err: say }),
  models: async ({ config }, args, io) => (await import('./models.js')).models(config, args, io),
  bench: async ({ config }, args, io) => (await import('./bench.js')).bench(config, args, io),
  doctor: async (loaded, args, io) => (await import('./doctor.js')).doctor(loaded, args, io),
};

const BARE: Readonly<Record<string, (args: Args, io: Io) => Promise<number>>> = {
  'check-config': (args, io) =>
    orUsage('check-config', io, async () => (await import('./check-config.js')).checkConfig(args, io)),
  completion: (args, io) =>
    orUsage('completion', io, async () => (await import('./completion.js')).completion(args, io)),
};

/** Runs the command that `args` name. Resolves with the exit code and never rejects. */
export async function runCommand(args: Args, caller: CommandCaller): Promise<number> {
  const { out, err: say } = caller;
  const [name = '', ...rest] = args;
  if (asksForHelp(args)) {
    out(helpOf(args.slice(0, 2).join(' ')));
    return EXIT.done;
  }
  if (name === '--version') {
    out(`ra-sidecar ${VERSION}\n`);
    return EXIT.done;
  }
  if (!Object.hasOwn(COMMANDS, name)) {
    return await orUsage('', caller, () => {
      throw new UsageError(name === '' ? 'a command is required' : 'unknown command');
    });
  }
  try {
    const bare = BARE[name];
    if (bare) return await bare(rest, caller);
    return await runConfigured(name, rest, caller);
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

async function runConfigured(name: string, args: Args, caller: CommandCaller): Promise<number> {
  const loaded = loadConfig();
  if (loaded.kind === 'invalid') {
    caller.err(`${loaded.line}\n`);
    const others = loaded.lines.length - 1;
    if (others > 0) caller.err(`and ${others} more: ra-sidecar check-config\n`);
    return EXIT.failed;
  }
  return await (CONFIGURED[name]?.(loaded, args, caller) ?? EXIT.usage);
}

function runServe(loaded: LoadedConfig, args: Args, caller: CommandCaller): Promise<number> {
  return orUsage('serve', caller, async () => {
    parsed(COMMANDS.serve, args);
    if (loaded.unservable === undefined) return await caller.serve(loaded);
    caller.err(`${loaded.unservable}\n`);
    return EXIT.failed;
  });
}
