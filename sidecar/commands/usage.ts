import type { Writable } from 'node:stream';
import type { Config } from '../config.js';
import { spoolDir } from '../spooling.js';
import { lockOwner } from '../usage/lock.js';
import { EXPORT_HELP, usageExport } from './usage-export.js';
import { verify, type Finding, type Verified } from '../usage/verify.js';

const VERIFY_HELP = `usage: ra-sidecar usage verify [--json]

  verify   read the whole usage spool and say what is damaged; exit code 1 when anything is
`;

export const USAGE_HELP = `${VERIFY_HELP}\n${EXPORT_HELP}`;

/** Exit codes besides 0. */
const EXIT = { damage: 1, usage: 2 } as const;

/** Where results go, and what is for people. */
export interface UsageStreams {
  readonly out: Writable;
  readonly say: (text: string) => void;
}

/** `ra-sidecar usage verify|export`, which may run beside the sidecar. Resolves with the exit code. */
export function usage(config: Config, args: readonly string[], { out, say }: UsageStreams): Promise<number> {
  const [command, ...options] = args;
  const dir = spoolDir(config);
  if (command === 'export') return usageExport(options, dir, { out, complain: say });
  if (command === 'verify' && options.every((option) => option === '--json')) {
    return report(dir, options.length > 0, out);
  }
  say(USAGE_HELP);
  return Promise.resolve(EXIT.usage);
}

async function report(dir: string, json: boolean, out: Writable): Promise<number> {
  const verified = await verify(dir, (await lockOwner(dir)) !== undefined);
  out.write(json ? `${JSON.stringify(verified)}\n` : text(dir, verified));
  return verified.findings.length === 0 ? 0 : EXIT.damage;
}

function text(dir: string, { segments, records, findings }: Verified): string {
  const lines = findings.map((finding) => `segment ${finding.segment}: ${sentence(finding)}`);
  const sum = `${dir}: ${segments} segments, ${records} records, ${findings.length === 0 ? 'no damage' : `${findings.length} findings`}`;
  return [...lines, sum, ''].join('\n');
}

function sentence(finding: Finding): string {
  switch (finding.kind) {
    case 'damage':
      return `${finding.bytes} bytes from offset ${finding.offset} are damaged or missing`;
    case 'missing':
      return 'is missing';
    case 'unfinished':
      return `the spool was not closed: it stops at offset ${finding.offset} with ${finding.bytes} bytes of a line; the next start mends that`;
  }
}
