/** Child processes that may end before they did what is awaited. */
import type { ChildProcess } from 'node:child_process';
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
