/** Starts a child process with a link to it. A failed fork is an expected outcome, not a fault. */
import { spawn, type ChildProcess } from 'node:child_process';
import { Link, type LinkEvents } from './link.js';

export type Forked =
  | { readonly kind: 'forked'; readonly child: ChildProcess; readonly link: Link }
  /** `code`: the operating system's code, such as EMFILE. Settles after this turn of the event loop; never rejects. */
  | { readonly kind: 'failed'; readonly code: Promise<string> };

export interface ForkOptions {
  readonly stderr: 'inherit' | 'pipe';
  /** The child's whole environment. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/**
 * Starts `file` with a pipe at the descriptor of engine/protocol/link.ts. Never throws. The child's `error` events have a listener: one that comes
 * later is about a signal that could not be sent.
 */
export function forkLinked(
  file: string,
  args: readonly string[],
  { stderr, environment }: ForkOptions,
  events: LinkEvents,
): Forked {
  try {
    const child = spawn(file, args, { stdio: ['ignore', 'ignore', stderr, 'pipe'], env: { ...environment } });
    const failed = new Promise<string>((resolve) => {
      child.on('error', (error: NodeJS.ErrnoException) => resolve(codeOf(error)));
    });
    // If descriptors have run out, Node creates a child without streams, and an event.
    if (child.pid === undefined) return { kind: 'failed', code: failed };
    return { kind: 'forked', child, link: Link.toChild(child, events) };
  } catch (error) {
    // A few failures (no memory) are thrown.
    return { kind: 'failed', code: Promise.resolve(codeOf(error)) };
  }
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? 'unknown';
}
