import type { Config } from '../config.js';
import { spoolDir } from '../spooling.js';
import { lockOwner } from '../usage/lock.js';
import { EXPORT_HELP } from './usage-export.js';
import { verify, type Finding, type Verified } from '../usage/verify.js';

const HELP = `usage: ra-sidecar usage verify [--json]

  verify   read the whole usage spool and say what is damaged; exit code 1 when anything is
`;

/** Exit codes besides 0. */
const EXIT = { damage: 1, usage: 2 } as const;

/** `ra-sidecar usage …`. Resolves with the exit code; `print` takes text for stdout. */
export async function usage(args: readonly string[], config: Config, print: (text: string) => void): Promise<number> {
  const [command, ...options] = args;
  const json = options.includes('--json');
  if (command !== 'verify' || options.some((option) => option !== '--json')) {
    print(`${HELP}\n${EXPORT_HELP}`);
    return EXIT.usage;
  }
  const dir = spoolDir(config);
  const verified = await verify(dir, (await lockOwner(dir)) !== undefined);
  print(json ? `${JSON.stringify(verified)}\n` : text(dir, verified));
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
