#!/usr/bin/env node
import { keys, KEYS_HELP } from './commands/keys.js';
import { serve } from './commands/serve.js';
import { usage, USAGE_HELP } from './commands/usage.js';
import { loadConfig, type Config } from './config.js';
import { openLog } from './telemetry/logger.js';

/** Exit codes: a start that the configuration or the machine prevents, and a wrong command line. */
const EXIT = { failed: 1, usage: 2 } as const;

const HELP = `usage: ra-sidecar serve
       ra-sidecar keys create|list|revoke|rotate
       ra-sidecar usage verify|export

  serve    run the sidecar until SIGTERM or SIGINT
  keys     the keys that callers have; --help says more
  usage    what was used: look for damage, write out what was billed; --help says more

Settings come from the JSON or JSONC file that RA_CONFIG names and from RA_ variables; docs/config.md lists them.
`;

type Command = (config: Config, args: readonly string[], hints: readonly string[]) => Promise<number>;

/** By name: what runs, what its `--help` prints, and whether it takes arguments. */
const COMMANDS: ReadonlyMap<
  string | undefined,
  { readonly run: Command; readonly help: string; readonly bare?: true }
> = new Map([
  ['serve', { run: runServe, help: HELP, bare: true }],
  ['keys', { run: (config, args) => keys(config, args, { out, say }), help: KEYS_HELP }],
  ['usage', { run: (config, args) => usage(config, args, { out: process.stdout, say }), help: USAGE_HELP }],
] as const);

async function main(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  const command = COMMANDS.get(name);
  if (args.some((argument) => argument === '--help' || argument === '-h')) {
    out(command?.help ?? HELP);
    return 0;
  }
  if (!command || (command.bare && rest.length > 0)) {
    say(HELP);
    return EXIT.usage;
  }
  const loaded = loadConfig();
  if (loaded.kind === 'invalid') {
    say(`${loaded.line}\n`);
    return EXIT.failed;
  }
  try {
    return await command.run(loaded.config, rest, loaded.hints);
  } catch (error) {
    say(`ra-sidecar: ${error instanceof Error ? error.message : 'failed'}\n`);
    return EXIT.failed;
  }
}

async function runServe(config: Config, _args: readonly string[], hints: readonly string[]): Promise<number> {
  const logging = openLog(config.log.level);
  const { log } = logging;
  // Node would print the error's message, which can quote a request.
  process.once('uncaughtException', (fault) => {
    log.error('crashed', { fault });
    logging.flush();
    process.exit(EXIT.failed);
  });
  for (const reason of hints) log.warn('config', { reason });
  try {
    // Lines for people go to stderr: stdout is the log, one JSON object a line.
    return await serve(config, log, (line) => say(`${line}\n`));
  } finally {
    logging.flush();
  }
}

function out(text: string): void {
  process.stdout.write(text);
}

function say(text: string): void {
  process.stderr.write(text);
}

process.exit(await main(process.argv.slice(2)));
