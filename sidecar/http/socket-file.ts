/**
 * The file of a Unix socket. uWS deletes whatever is at the path before it binds, including a running server's socket
 * or a plain file, so the path is checked first.
 */
import { chmodSync, lstatSync, unlinkSync, type Stats } from 'node:fs';
import { connect } from 'node:net';

/** A socket file that this process made. */
export interface SocketFile {
  /**
   * Removes it, unless another process has replaced it. If it cannot be removed it stays, since the next start replaces
   * a stale socket. Idempotent, never throws.
   */
  remove(): void;
}

/** What is at the path of a socket. */
export type SocketPathState =
  /** `free`: nothing. `stale`: a socket file on which no process listens. */
  | { readonly kind: 'free' | 'stale' }
  /** `listening`: another process does. */
  | { readonly kind: 'taken'; readonly why: string; readonly listening: boolean };

/** Looks at the path and changes nothing. */
export async function socketPathState(path: string): Promise<SocketPathState> {
  const found = look(path);
  if (found === undefined) return { kind: 'free' };
  if (!found.isSocket()) return { kind: 'taken', why: 'the path is a file that is not a socket', listening: false };
  const answer = await knock(path);
  if (answer === 'ENOENT') return { kind: 'free' };
  if (answer === 'ECONNREFUSED') return { kind: 'stale' };
  const listening = answer === 'connected';
  return { kind: 'taken', why: listening ? 'another process does' : answer, listening };
}

/** Resolves if `path` may be bound, after removing a stale socket. Rejects with a line that gives the reason. */
export async function clearSocketPath(path: string): Promise<void> {
  const state = await socketPathState(path);
  if (state.kind === 'taken') throw new Error(`cannot listen on ${path}: ${state.why}`);
  if (state.kind === 'stale') unlinkSync(path);
}

/**
 * Runs `bind`, which creates the file synchronously for its owner only, and then sets `mode`, so that no other user can
 * connect in between. Undefined: it could not be bound.
 */
export function bindSocketFile(path: string, mode: number, bind: () => boolean): SocketFile | undefined {
  const before = process.umask(0o177);
  let bound: boolean;
  try {
    bound = bind();
  } finally {
    process.umask(before);
  }
  if (!bound) return undefined;
  chmodSync(path, mode);
  const { dev, ino } = lstatSync(path);
  return {
    remove: () => {
      try {
        const now = look(path);
        if (now?.dev === dev && now.ino === ino) unlinkSync(path);
      } catch {
        // It stays.
      }
    },
  };
}

function look(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

/** `connected`, or the error code. A full backlog means that a process listens. */
function knock(path: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve('connected');
    });
    socket.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code ?? 'unknown'));
  });
}
