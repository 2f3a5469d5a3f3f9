import type { Writable } from 'node:stream';
import type { Config } from '../config/config.js';
import { spoolDir } from '../app/compose-spool.js';
import { lockOwner } from '../usage/lock.js';
import { EXIT, parsed, UsageError } from './command.js';
import { orUsage } from './help.js';
import { COMMANDS } from './command-table.js';
import { needSpool } from './spool-folder.js';
import { usageExport } from './usage-export.js';
import { verify, type SpoolFault, type Verified } from '../usage/reader.js';

/** Streams for results and messages. */
export interface UsageStreams {
  readonly out: Writable;
  readonly err: (text: string) => void;
}

/**
 * `ra-sidecar usage verify|export`, which may run beside the sidecar. Resolves with the exit code; rejects without a
 * spool.
 */
export function usage(config: Config, args: readonly string[], { out, err: say }: UsageStreams): Promise<number> {
  return orUsage(`usage ${args[0] ?? ''}`, { err: say }, async () => {
    const [action, ...rest] = args;
    const dir = spoolDir(config);
    if (action === 'export') return await usageExport(rest, dir, { out, err: say });
    if (action !== 'verify')
      throw new UsageError(`usage: ${action === undefined ? 'a command is required' : 'unknown command'}`);
    const { values } = parsed(COMMANDS.usage.commands.verify, rest);
    return await report(dir, values.json === true, out);
  });
}

async function report(dir: string, json: boolean, out: Writable): Promise<number> {
  needSpool(dir);
  const verified = await verify(dir, (await lockOwner(dir)) !== undefined);
  const printed = json ? `${JSON.stringify(verified)}\n` : text(dir, verified);
  // Waits until it is written, since the process ends afterwards. Rejects if it cannot be.
  await new Promise<void>((resolve, reject) => {
    out.write(printed, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
  return verified.findings.length === 0 ? EXIT.done : EXIT.failed;
}

function text(dir: string, { segments, records, findings }: Verified): string {
  const lines = findings.map((finding) => `segment ${finding.segment}: ${sentence(finding)}`);
  const sum = `${dir}: ${segments} segments, ${records} records, ${findings.length === 0 ? 'no damage' : `${findings.length} findings`}`;
  return [...lines, sum, ''].join('\n');
}

function sentence(finding: SpoolFault): string {
  switch (finding.kind) {
    case 'damage':
      return `${finding.bytes} bytes from offset ${finding.offset} are damaged or missing`;
    case 'missing':
      return 'is missing';
    case 'unfinished':
      return `the spool was not closed: it stops at offset ${finding.offset} with ${finding.bytes} bytes of a line; the next start repairs that`;
  }
}
