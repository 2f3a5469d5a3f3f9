import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { env } from 'node:process';

/** Where Debian installs programs; a user’s own PATH often lacks the last two. */
const PATHS = [...(env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'];

/** Whether this host has a program. */
export function hasProgram(name: string): boolean {
  return PATHS.some((path) => {
    try {
      accessSync(join(path, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
