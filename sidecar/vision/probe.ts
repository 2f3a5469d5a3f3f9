import { readFileSync } from 'node:fs';
import type { VisionFacts, VisionSetup } from '../../engine/protocol/vision-messages.js';
import type { Clock } from '../lib/clock.js';
import { VisionProcess, type VisionProcessEvents } from './process.js';

export type Probed =
  /** `bytes`: its memory; undefined: this system does not report it. */
  | { readonly kind: 'ready'; readonly facts: VisionFacts; readonly bytes: number | undefined }
  /** `reason`: one line for the operator. */
  | { readonly kind: 'unable'; readonly reason: string };

/** Starts a vision process, looks at what it is, and ends it. `entry`: of its module, absent: our own. Never rejects. */
export function probeVision(setup: VisionSetup, clock: Clock, entry?: string): Promise<Probed> {
  return new Promise((resolve) => {
    let found: Probed | undefined;
    const events: VisionProcessEvents = {
      message: (message) => {
        if (message.kind === 'ready') found = { ...message, bytes: residentBytes(process.pid) };
        else if (message.kind === 'unable') found = message;
        process.kill('closed');
      },
      gone: (why) => resolve(found ?? { kind: 'unable', reason: `its process ended: ${why}` }),
    };
    const process = new VisionProcess(setup, clock, events, entry);
  });
}

function residentBytes(pid: number | undefined): number | undefined {
  try {
    const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return kib === undefined ? undefined : 1024 * Number(kib);
  } catch {
    return undefined;
  }
}
