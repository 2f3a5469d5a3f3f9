import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { messageOf } from '../support/children.js';
import type { Attempt } from './attempt.js';
import type { Load } from './generator.js';

const GENERATOR = fileURLToPath(new URL('./generator.js', import.meta.url));

/** Sends a load from a process of its own; resolves with how each of its requests ended. Rejects if the process ends before. */
export async function offer(load: Load): Promise<Attempt[]> {
  const child = fork(GENERATOR);
  child.send(load);
  const attempts = await messageOf<Attempt[]>(child);
  child.disconnect();
  return attempts;
}
