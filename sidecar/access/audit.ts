/** The record of operators' changes: `audit.jsonl` in the data folder, a JSON object a line, durable before the change is made. */
import { stat, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { FileProblem } from '../lib/checked-file.js';
import { appendLines } from '../lib/append-lines.js';
import { LockError } from '../lib/replace-file.js';
import type { ChangeNote } from './keys.js';

export interface AuditLine extends ChangeNote {
  /** ISO 8601. */
  readonly at: string;
  /** The first 8 hex digits of SHA-256 of the operator's secret; of a command its user, as in `uid:1000`. */
  readonly operator: string;
  readonly action: string;
  /** Why the change failed after its line was written, in a second line; it is then not known whether the change was made. */
  readonly error?: string;
}

/** Some 200,000 lines. A full file refuses changes: nothing that was recorded is dropped to make room. */
const MAX_AUDIT_BYTES = 64 * 1024 * 1024;

/** The line cannot be written. The message is one line for the operator. */
export class AuditError extends Error {
  override readonly name = 'AuditError';
}

/**
 * Appends a line and makes it durable. Rejects with {@link AuditError}, and then has written nothing, or the beginning of a line, which the
 * next one does not continue. `mostBytes`: of the whole file.
 */
export async function appendAudit(file: string, line: AuditLine, mostBytes = MAX_AUDIT_BYTES): Promise<void> {
  const own = (handle: FileHandle): Promise<void> => giveToOwnerOf(dirname(file), handle);
  try {
    const isWritten = await appendLines(file, `${JSON.stringify(line)}\n`, mostBytes, own);
    if (!isWritten) throw new AuditError(`${file} is full: move it to another place`);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    throw new AuditError(`${file} cannot be written: ${code}`);
  }
}

/** A file that a command of root creates must be one to which the service can append. */
async function giveToOwnerOf(folder: string, handle: FileHandle): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(folder);
  await handle.chown(uid, gid);
}

/**
 * Makes a change that calls the given function once before it takes place. Rejects with {@link AuditError} if its line cannot be written,
 * and otherwise as `change` does; then a second line has the reason.
 */
export async function audited<T>(
  file: string,
  by: Pick<AuditLine, 'operator' | 'action'>,
  change: (note: (what: ChangeNote) => Promise<void>) => Promise<T>,
): Promise<T> {
  let noted: AuditLine | undefined;
  try {
    return await change(async (what) => {
      const line = { at: new Date().toISOString(), ...by, ...what };
      await appendAudit(file, line);
      noted = line;
    });
  } catch (error) {
    if (noted) await appendAudit(file, { ...noted, error: reasonOf(error) ?? 'fault' }).catch(() => undefined);
    throw error;
  }
}

/** Why a change was not made, in one line; undefined: a fault. */
export function reasonOf(error: unknown): string | undefined {
  if (error instanceof FileProblem || error instanceof LockError || error instanceof AuditError) return error.message;
  const { code, syscall } = error as NodeJS.ErrnoException;
  return code === undefined || syscall === undefined ? undefined : `the file cannot be written: ${code}`;
}
