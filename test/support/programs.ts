/** The programs that tests start as processes. */
import { join } from 'node:path';
import { env } from 'node:process';
import { fileURLToPath } from 'node:url';

const DIST = fileURLToPath(new URL('../../', import.meta.url));

/** Its path: as `make test` bundled it (bundle-programs.ts), or else as it is shipped. */
export function program(path: 'sidecar/cli.js' | 'engine/main.js'): string {
  return join(env['TEST_PROGRAMS'] ?? DIST, path);
}
