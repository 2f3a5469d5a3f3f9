/**
 * The file of a Unix socket, around the binding itself. uWS deletes whatever is at the path before it binds, a running
 * server's socket or a plain file alike: so what is there is looked at first.
 */
import { chmodSync, lstatSync, unlinkSync, type Stats } from 'node:fs';
import { connect } from 'node:net';

/** A socket file that we made. */
export interface SocketFile {
  /**
   * Removes it, unless somebody else has put another in its place. One that cannot be removed stays: whoever starts next
   * sees to a socket that nobody listens on, and nothing else is to go unclosed for it. Idempotent, never throws.
   */
  remove(): void;
}

/** Whether one may bind to `path`, a socket that nobody listens on removed. Rejects with a line that says why not. */
export async function clearSocketPath(path: string): Promise<void> {
  const found = look(path);
  if (found === undefined) return;
  if (!found.isSocket()) throw new Error(`cannot listen on ${path}: there is a file that is no socket`);
  const answer = await knock(path);
  if (answer === 'ENOENT') return;
  if (answer !== 'ECONNREFUSED') {
    throw new Error(`cannot listen on ${path}: ${answer === 'connected' ? 'another process does' : answer}`);
  }
  unlinkSync(path);
}

/**
 * Runs `bind`, which makes the file synchronously, for its owner alone, and opens it up to `mode` then: nobody connects
 * in between who may not. Undefined: it could not be bound.
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

/** `connected`, or the code of what went wrong. A full backlog is somebody's too. */
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
