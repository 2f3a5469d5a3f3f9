#!/usr/bin/env node
import { keys, KEYS_HELP } from './commands/keys.js';
import { serve } from './commands/serve.js';
import { usageExport } from './commands/usage-export.js';
import { usage } from './commands/usage.js';
import { loadConfig, type Loaded } from './config.js';
import { spoolDir } from './spooling.js';
import { openLog, type Log } from './telemetry/logger.js';

/** Exit codes: a start that the configuration or the machine prevents, and a wrong command line. */
const EXIT = { failed: 1, usage: 2 } as const;

const HELP = `usage: ra-sidecar <command>

  serve                  run the sidecar until SIGTERM or SIGINT
  keys create|list|revoke|rotate
                         the keys that callers have; keys --help says more
  usage verify [--json]  look for damage in the usage spool
  usage export           write what was billed to stdout (--from, --to, --account, --format)

Settings come from the JSON or JSONC file that RA_CONFIG names and from RA_ variables; docs/config.md lists them.
`;

/** One command: its own arguments and the settings go in, its exit code comes out. Thrown: it could not be done. */
type Command = (args: readonly string[], settings: Settings, log: Log) => Promise<number>;

type Settings = Extract<Loaded, { readonly kind: 'config' }>;

const COMMANDS: ReadonlyMap<string, Command> = new Map<string, Command>([
  ['serve', serveCommand],
  ['keys', keysCommand],
  ['usage', usageCommand],
]);

function keysCommand(args: readonly string[], { config }: Settings): Promise<number> {
  const out = (text: string): void => void process.stdout.write(text);
  if (args.includes('--help')) {
    out(KEYS_HELP);
    return Promise.resolve(0);
  }
  return keys(config, args, { out, say: (text) => process.stderr.write(text) });
}

function usageCommand(args: readonly string[], { config }: Settings): Promise<number> {
  const [command, ...options] = args;
  return command === 'export'
    ? usageExport(options, spoolDir(config), { out: process.stdout, complain: (line) => process.stderr.write(line) })
    : usage(args, config, (text) => process.stdout.write(text));
}

function serveCommand(args: readonly string[], { config, hints }: Settings, log: Log): Promise<number> {
  if (args.length > 0) {
    process.stderr.write(HELP);
    return Promise.resolve(EXIT.usage);
  }
  for (const reason of hints) log.warn('config', { reason });
  // Lines for people go to stderr: stdout is the log, one JSON object a line.
  return serve(config, log, (line) => process.stderr.write(`${line}\n`));
}

async function main(args: readonly string[]): Promise<number> {
  const [name = '', ...rest] = args;
  if (name === '--help' || name === '-h') {
    process.stdout.write(HELP);
    return 0;
  }
  const command = COMMANDS.get(name);
  if (!command) {
    process.stderr.write(HELP);
    return EXIT.usage;
  }
  const loaded = loadConfig();
  if (loaded.kind === 'invalid') {
    process.stderr.write(`${loaded.line}\n`);
    return EXIT.failed;
  }
  const logging = openLog(loaded.config.log.level);
  const { log } = logging;
  try {
    return await command(rest, loaded, log);
  } catch (error) {
    process.stderr.write(`ra-sidecar: ${error instanceof Error ? error.message : 'could not start'}\n`);
    return EXIT.failed;
  } finally {
    logging.flush();
  }
}

process.exit(await main(process.argv.slice(2)));
