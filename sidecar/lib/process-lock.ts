/**
 * A lock that the kernel holds for a process: the name of a Unix socket in Linux's abstract namespace. One `bind` of a name
 * succeeds, all others fail while it lasts, and the kernel frees the name when the process ends, however it ends. So there
 * is nothing to take over, and no file that can be deleted under its owner.
 *
 * It excludes processes of one network namespace. Any user of that namespace can bind a name, as any can bind a TCP port:
 * it prevents mistakes, not malice.
 */
import { connect, createServer, type Server } from 'node:net';

export interface ProcessLock {
  /** Frees the name. Idempotent. */
  release(): Promise<void>;
}

/** The owner accepts and answers at once; one that is stopped never does. Ms. */
const ANSWER_MS = 1000;

/** Longest answer that is read: more digits than a process id has. */
const MAX_ANSWER_CHARS = 20;

/** Connections that wait to be accepted: processes that ask for the owner's id at the same moment. */
const PENDING = 16;

/** Takes a name of at most 100 bytes, past which names are cut; undefined: another holder has it, which may be this process. Rejects with the system's error. */
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
      // A descriptor that cannot be accepted is no reason to end the process.
      server.on('error', () => undefined);
      server.unref();
      resolve({ release: () => closed(server) });
    });
  });
}

/** The process that holds a name; 0: one that does not answer within a second; undefined: none holds it. */
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

/** A leading NUL is how the kernel tells this namespace from paths. */
function address(name: string): string {
  return `\0${name}`;
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
