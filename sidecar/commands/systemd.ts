/** Notifies systemd of the process's state if systemd started it (docs/deploy.md). */
import { execFile } from 'node:child_process';
import type { Log } from '../telemetry/logger.js';

/** systemd's own program: Node cannot open datagram Unix sockets. */
const NOTIFY = 'systemd-notify';

/** The longest time for the program, which writes one datagram, ms. */
const NOTIFY_MS = 5000;

/** Notifies the process manager that the sidecar is ready or ends. Never throws, and callers do not wait. */
export interface ServiceManager {
  ready(): void;
  stopping(): void;
}

/** Without a process manager. */
export const NO_SERVICE_MANAGER: ServiceManager = { ready: () => undefined, stopping: () => undefined };

/**
 * Notifies systemd over the socket in NOTIFY_SOCKET of this process's environment, which children inherit. A failure is
 * logged; without a notification systemd ends the start itself.
 */
export function systemd(log: Log): ServiceManager {
  // The option --stopping does not exist in Debian 12's version.
  const notify = (state: 'READY=1' | 'STOPPING=1'): void => {
    execFile(NOTIFY, [state], { timeout: NOTIFY_MS }, (error) => {
      if (error) log.warn('systemd was not notified', { reason: state });
    });
  };
  return { ready: () => notify('READY=1'), stopping: () => notify('STOPPING=1') };
}
