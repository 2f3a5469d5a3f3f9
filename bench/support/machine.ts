import { availableParallelism, cpus, loadavg, totalmem } from 'node:os';
import { codeCommit } from './commit.js';

/** The processor, as results record it. */
export function processor(): string {
  return `${cpus()[0]?.model ?? 'unknown'}, ${cpus().length} cores`;
}

/** The machine of a result, as a line of Markdown. */
export function machine(): string {
  const load = loadavg()[0]?.toFixed(1) ?? '?';
  const gib = Math.round(totalmem() / 2 ** 30);
  const date = new Date().toISOString().slice(0, 10);
  return `Commit ${codeCommit()}, ${date}, Node ${process.version}, ${availableParallelism()} cores of ${cpus()[0]?.model ?? 'unknown'}, ${gib} GiB, load ${load} at the start.`;
}
