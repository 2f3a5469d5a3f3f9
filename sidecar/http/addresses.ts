/**
 * Addresses to listen on: why one cannot be used, which uWS does not say, and the file of a Unix socket. uWS deletes whatever is at
 * that file's path before it binds, including a running server's socket or a plain file, so the path is checked first.
 */
import { chmodSync, constants, lstatSync, unlinkSync, type Stats } from 'node:fs';
import { access } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { dirname } from 'node:path';

/** The longest path of a Unix socket, bytes. */
const MOST_PATH_BYTES = 107;

/** All addresses of IPv6, and with them those of IPv4. */
const ANY = '::';

/** All addresses of IPv4. */
const ANY_IPV4 = '0.0.0.0';

/** The code of a kernel without IPv6. */
const WITHOUT_IPV6 = 'EAFNOSUPPORT';

/** The address to use in place of `host` where listening on it failed with `code`: `::` means all addresses, also without IPv6. */
export function hostInstead(host: string, code: string | undefined): string | undefined {
  return host === ANY && code === WITHOUT_IPV6 ? ANY_IPV4 : undefined;
}

/** `host:port` as in a URL. */
export function addressText(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Why the address, or the one that is used in its place, cannot be listened on: the operating system's code, or undefined. */
export async function addressProblem(host: string, port: number): Promise<string | undefined> {
  const code = await bindError(host, port);
  const instead = hostInstead(host, code);
  return instead === undefined ? code : await bindError(instead, port);
}

/** Listens for a moment, since only that shows whether it is possible. The operating system's code, or undefined. */
export function bindError(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code ?? 'failed'));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/** What prevents the file of a socket from being created, or undefined if nothing is known to. */
export async function socketProblem(path: string): Promise<string | undefined> {
  if (Buffer.byteLength(path) > MOST_PATH_BYTES) return `the path is longer than ${MOST_PATH_BYTES} bytes`;
  return await access(dirname(path), constants.W_OK | constants.X_OK).then(
    () => undefined,
    (error: unknown) => `its folder cannot be written (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`,
  );
}

/** A socket file that this process made. */
export interface SocketFile {
  /**
   * Removes it unless another process replaced it. A socket that cannot be removed is replaced at the next start. Idempotent, never throws.
   */
  remove(): void;
}

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
 * Runs `bind`, which creates the file synchronously for its owner only, and then sets `mode`, so that no other user can connect in between.
 * Undefined if it could not be bound.
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
