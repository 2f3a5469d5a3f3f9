export { systemText } from '../../engine/protocol/usable-cores.js';

/** Whether a file or a folder does not exist. */
export function isMissing(error: unknown): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === 'ENOENT';
}

/** What a call about a file resolves with; undefined if there is no such file. */
export async function ifPresent<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}
