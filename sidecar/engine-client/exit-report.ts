import type { LogFields } from '../telemetry/logger.js';
import type { ChildEnd } from './exit-reason.js';

/** How the engine process `pid` ended, for the log. */
export function endFields({ reason, detail, hint, code, signal }: ChildEnd, pid: number | undefined): LogFields {
  return {
    reason: [reason, detail, hint].filter(Boolean).join(': '),
    ...pidField(pid),
    ...(code !== null && { exitCode: code }),
    ...(signal !== null && { signal }),
  };
}

/** The id of a process, for the log. */
export function pidField(pid: number | undefined): LogFields {
  return pid === undefined ? {} : { pid };
}

/** Why the model has no engine, for operators; undefined: it is being restarted. */
export function problemOf({ reason, detail }: ChildEnd): string | undefined {
  return reason === 'unstartable' ? `cannot be forked: ${detail ?? ''}` : undefined;
}
