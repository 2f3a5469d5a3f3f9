/**
 * SIGHUP has two meanings. A service manager or an operator sends it to have files read again; the kernel and the shell
 * send it when the terminal is closed that a process was started from.
 */
import { closeSync } from 'node:fs';
import { isatty } from 'node:tty';

/** Of stdin, stdout and stderr, those that were a terminal at the start. */
const terminals = [0, 1, 2].filter((descriptor) => isatty(descriptor));

/** Whether this process was started from a terminal that was closed since. */
export function terminalClosed(): boolean {
  return closed().length > 0;
}

/** Keeps a hang-up from ending this process, until it has a handler that acts on it, and from crashing it at its end. */
export function endureHangUp(): void {
  process.on('SIGHUP', () => undefined);
  // Node restores the modes of terminals at its end, and crashes if one of them was closed, unless its descriptor is.
  process.on('exit', () => closed().forEach(closeSync));
}

function closed(): number[] {
  return terminals.filter((descriptor) => !isatty(descriptor));
}
