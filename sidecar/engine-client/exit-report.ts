import type { LogFields } from '../telemetry/logger.js';
import { ENGINE_EXIT } from '../../engine/protocol/messages.js';
import type { ChildEnd } from '../lib/child-process.js';

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

/** Why there is no engine process, for operators; undefined: one that was ready is being restarted. */
export function problemOf({ reason, detail, code }: ChildEnd, wasReady: boolean): string | undefined {
  if (code === ENGINE_EXIT.lost) return detail;
  if (reason === 'unstartable') return `cannot be forked: ${detail ?? ''}`;
  return wasReady ? undefined : `its last start failed: ${[reason, detail].filter(Boolean).join(': ')}`;
}
