/**
 * A lock that the kernel keeps for a process: the name of a Unix socket in Linux's abstract namespace. One `bind` of a
 * name succeeds and all others fail while it lasts. The kernel releases the name when the process ends, however it
 * ends. So there is no stale lock to take over, and no lock file that could be deleted.
 *
 * It excludes processes of one network namespace. Any user of that namespace can bind a name, as any can bind a TCP
 * port: it prevents mistakes, not malice.
 */
import { connect, createServer, type Server } from 'node:net';

export interface ProcessLock {
  /** Releases the name. Idempotent. */
  release(): Promise<void>;
}

/** The time for the owner to answer, ms. A running owner answers at once; a stopped process never does. */
const ANSWER_MS = 1000;

/** Longest answer that is read: more digits than a process id has. */
const MAX_ANSWER_CHARS = 20;

/** Connections that wait to be accepted, from processes that ask for the owner's id at the same time. */
const PENDING = 16;

/**
 * Takes a name of at most 100 bytes (longer names would be truncated). Undefined if it is taken, perhaps by this process. Rejects with the
 * system's error.
 */
export function lockName(name: string): Promise<ProcessLock | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      // A peer that keeps its end open must not keep `close` waiting.
      socket.end(String(process.pid), () => socket.destroy());
    });
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(undefined);
      else reject(error);
    });
    server.listen({ path: address(name), exclusive: true, backlog: PENDING }, () => {
      // A connection that cannot be accepted must not end the process.
      server.on('error', () => undefined);
      server.unref();
      resolve({ release: () => closed(server) });
    });
  });
}

/** The id of the process that has the name; 0 if it does not answer within a second; undefined if the name is free. */
export function holderOf(name: string): Promise<number | undefined> {
  return new Promise((resolve) => {
    const socket = connect(address(name));
    let answer = '';
    const end = (pid: number | undefined): void => {
      socket.destroy();
      resolve(pid);
    };
    socket.setEncoding('latin1');
    socket.setTimeout(ANSWER_MS, () => end(0));
    socket.on('data', (text: string) => {
      answer += text;
      if (answer.length > MAX_ANSWER_CHARS) end(0);
    });
    socket.on('end', () => end(/^\d+$/.test(answer) ? Number(answer) : 0));
    socket.on('error', ({ code }: NodeJS.ErrnoException) => end(code === 'ECONNREFUSED' ? undefined : 0));
  });
}

/** A leading NUL distinguishes this namespace from paths. */
function address(name: string): string {
  return `\0${name}`;
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
