import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const MAKER = fileURLToPath(new URL('../../engine/models/embedded-path.js', import.meta.url));

/** Making the embedded model takes well under a second; a disk that needs this long is broken, ms. */
const MAKE_TIMEOUT_MS = 120_000;

/**
 * The path of the embedded model in `dir`, made there when it is missing. A process of the engine's side makes it, since
 * the sidecar knows nothing of weights. Rejects when it cannot be made.
 */
export async function embeddedModel(dir: string): Promise<string> {
  return await ask(dir);
}

/** The same, undefined when there is none: nothing is made. */
export async function existingEmbeddedModel(dir: string): Promise<string | undefined> {
  return (await ask(dir, 'look')) || undefined;
}

async function ask(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [MAKER, ...args], { timeout: MAKE_TIMEOUT_MS });
  return stdout.trim();
}
