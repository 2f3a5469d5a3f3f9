/**
 * The command line without its process: selects the command, loads its configuration and returns the exit code.
 * command-table.ts describes each command. Commands are loaded when they run: `doctor` must work, and report the cause,
 * even if `serve` cannot be loaded.
 */
import type { Writable } from 'node:stream';
import { loadConfig, type LoadedConfig } from '../config/config.js';
import { VERSION } from '../lib/version.js';
import { EXIT, parsed, UsageError, type Io } from './command.js';
import { COMMANDS } from './command-table.js';
import { helpOf, NAME } from './help.js';

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
  store: async ({ config }, args, io) => (await import('./store.js')).store(config, args, io),
  models: async ({ config }, args, io) => (await import('./models.js')).models(config, args, io),
  batches: async ({ config }, args, io) => (await import('./batches.js')).batches(config, args, io),
  bench: async ({ config }, args, io) => (await import('./bench.js')).bench(config, args, io),
  doctor: async (loaded, args, io) => (await import('./doctor.js')).doctor(loaded, args, io),
};

/** Runs without one. */
const BARE: Readonly<Record<string, (args: Args, io: Io) => Promise<number>>> = {
  'check-config': async (args, io) => (await import('./check-config.js')).checkConfig(args, io),
  completion: async (args, io) => (await import('./completion.js')).completion(args, io),
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
    out(`${NAME} ${VERSION}\n`);
    return EXIT.done;
  }
  try {
    if (!Object.hasOwn(COMMANDS, name)) throw new UsageError(name === '' ? 'a command is required' : 'unknown command');
    return await (BARE[name]?.(rest, caller) ?? runConfigured(name, rest, caller));
  } catch (error) {
    const line = `${NAME}: ${error instanceof Error ? error.message : 'failed'}\n`;
    const isUsage = error instanceof UsageError;
    say(isUsage ? `${line}\n${helpOf(args.slice(0, 2).join(' '))}` : line);
    return isUsage ? EXIT.usage : EXIT.failed;
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

async function runServe(loaded: LoadedConfig, args: Args, caller: CommandCaller): Promise<number> {
  parsed(COMMANDS.serve, args);
  if (loaded.unservable === undefined) return await caller.serve(loaded);
  caller.err(`${loaded.unservable}\n`);
  return EXIT.failed;
}
