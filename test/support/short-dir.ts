import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A folder that is removed with the test, with a path short enough for Unix sockets, which tap’s own is not. */
export function shortDir(t: { teardown(fn: () => void): void }): string {
  const dir = mkdtempSync(join(tmpdir(), 'ra-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}
