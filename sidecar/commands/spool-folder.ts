import { statSync } from 'node:fs';

/** Throws, with one line, where no sidecar has ever had a spool: the command probably lacks the service's settings. */
export function needSpool(dir: string): void {
  if (statSync(dir, { throwIfNoEntry: false })) return;
  throw new Error(`there is no usage spool at ${dir}: run this with the service's settings (RA_CONFIG, RA_DATA_DIR)`);
}
