/** What systemd, where it started this process, is told of its state (docs/deploy.md). */
import { execFile } from 'node:child_process';
import type { Log } from '../telemetry/logger.js';

/** systemd's own program for it: the socket is a datagram's, which Node cannot open. */
const NOTIFY = 'systemd-notify';

/** It writes one datagram; past this it never will, ms. */
const NOTIFY_MS = 5000;

/** Tells whoever started this process that it takes work, or that it ends. Never throws and is not waited for. */
export interface ServiceManager {
  ready(): void;
  stopping(): void;
}

/** Nobody is told. */
export const NO_SERVICE_MANAGER: ServiceManager = { ready: () => undefined, stopping: () => undefined };

/**
 * systemd, over the socket that NOTIFY_SOCKET in this process's environment names; children inherit that. What could not
 * be told is logged: systemd itself ends a start of which it hears nothing.
 */
export function systemd(log: Log): ServiceManager {
  // Its option --stopping is younger than what Debian 12 has.
  const tell = (state: 'READY=1' | 'STOPPING=1'): void => {
    execFile(NOTIFY, [state], { timeout: NOTIFY_MS }, (error) => {
      if (error) log.warn('systemd was not told', { reason: state });
    });
  };
  return { ready: () => tell('READY=1'), stopping: () => tell('STOPPING=1') };
}
