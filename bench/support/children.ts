/** Child processes that may end before they did what is awaited. */
import { fork, type ChildProcess } from 'node:child_process';
import { once, type EventEmitter } from 'node:events';
import type { LinkedChild } from '../../test/support/linked-child.js';

/** Whether a process has ended, by itself or by a signal: its `exit` does not come any more. */
export function hasEnded({ exitCode, signalCode }: Pick<ChildProcess, 'exitCode' | 'signalCode'>): boolean {
  return exitCode !== null || signalCode !== null;
}

/** The next message of a process that `fork` started, or on its link. Rejects if it ends before, or has ended. */
export async function messageOf<T>(from: ChildProcess | LinkedChild): Promise<T> {
  const child = 'process' in from ? from.process : from;
  const messages: EventEmitter = from;
  const gone = new AbortController();
  const left = (): void => gone.abort(new Error('a process ended before its message'));
  if (hasEnded(child)) left();
  child.once('exit', left);
  try {
    const [message] = (await once(messages, 'message', { signal: gone.signal })) as [T];
    return message;
  } finally {
    child.off('exit', left);
  }
}

/** Longer than any of these processes takes to end, ms. */
const END_MS = 15_000;

/** A process that sends one message once it is ready, and ends with its channel. Rejects if it ends before. */
export async function forked(
  module: string,
  args: readonly string[] = [],
): Promise<{ readonly child: ChildProcess; readonly reported: unknown }> {
  const child = fork(module, args);
  return { child, reported: await messageOf(child) };
}

/** Ends such a process, and waits for it. */
export async function end(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const exited = once(child, 'exit');
  const timer = setTimeout(() => child.kill('SIGKILL'), END_MS);
  if (child.connected) child.disconnect();
  await exited;
  clearTimeout(timer);
}
