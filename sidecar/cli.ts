#!/usr/bin/env node
import { serve } from './commands/serve.js';
import { loadConfig } from './config.js';
import { openLog } from './telemetry/logger.js';

/** Exit codes: a start that the configuration or the machine prevents, and a wrong command line. */
const EXIT = { failed: 1, usage: 2 } as const;

const HELP = `usage: ra-sidecar serve

  serve    run the sidecar until SIGTERM or SIGINT

Settings come from the JSON or JSONC file that RA_CONFIG names and from RA_ variables; docs/config.md lists them.
`;

async function main(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args;
  if (command === '--help' || command === '-h') {
    process.stdout.write(HELP);
    return 0;
  }
  if (command !== 'serve' || rest.length > 0) {
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
  for (const reason of loaded.hints) log.warn('config', { reason });
  try {
    // Lines for people go to stderr: stdout is the log, one JSON object a line.
    return await serve(loaded.config, log, (line) => process.stderr.write(`${line}\n`));
  } catch (error) {
    process.stderr.write(`ra-sidecar: ${error instanceof Error ? error.message : 'could not start'}\n`);
    return EXIT.failed;
  } finally {
    logging.flush();
  }
}

process.exit(await main(process.argv.slice(2)));
