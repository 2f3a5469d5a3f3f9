/**
 * SIGHUP has two meanings. A service manager or an operator sends it to have files read again; the kernel and the shell send it when the
 * terminal is closed that a process was started from.
 */
import { closeSync } from 'node:fs';
import { isatty } from 'node:tty';

/** How often it is looked whether the parent has ended, ms. */
const PARENT_LOOK_MS = 500;

/**
 * Calls `ended` once the process that started this one has ended, unless the returned function was called before. npm passes SIGTERM to the
 * shell in which it starts a program; the shell ends, npm ends, and the program would stay with its port.
 */
export function whenParentEnds(ended: () => void): () => void {
  const parent = process.ppid;
  const look = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(look);
    ended();
  }, PARENT_LOOK_MS).unref();
  return () => clearInterval(look);
}

/** Of stdin, stdout and stderr, those that were a terminal at the start. */
const terminals = [0, 1, 2].filter((descriptor) => isatty(descriptor));

/** A terminal that was found closed this long before a SIGHUP has nothing to do with it, ms. */
const LOOK_MS = 5000;

/** As of the last look. */
let wasClosed = false;

if (terminals.length > 0) setInterval(() => (wasClosed = closed().length > 0), LOOK_MS).unref();

/** Whether this process was started from a terminal that was closed a moment ago. */
export function terminalClosed(): boolean {
  return !wasClosed && closed().length > 0;
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
