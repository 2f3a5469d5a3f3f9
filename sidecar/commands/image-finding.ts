/**
 * What `doctor` and `models verify` report of a model's images: whether its projector fits it, and how confined its
 * process is.
 */
import { visionSetupOf } from '../app/compose-vision.js';
import type { ModelConfig } from '../config/config.js';
import type { ModelReport } from '../engine-client/inspector.js';
import type { Clock } from '../lib/clock.js';
import { probeVision, type Probed } from '../vision/process.js';
import type { Check } from './check.js';
import { size } from './layout.js';

type Finding = ModelReport['findings'][number];

/** Heartbeats do not matter to a process that is ended at once, ms. */
const HEARTBEAT_MS = 1000;

/** Undefined: the model takes no images. `file`: its path. `entry`: of the process' module, absent: our own. */
export async function imageFinding(
  model: ModelConfig | undefined,
  file: string,
  clock: Clock,
  entry?: string,
): Promise<{ readonly finding: Finding; readonly bytes: number } | undefined> {
  const setup = model && visionSetupOf({ ...model, file }, HEARTBEAT_MS);
  if (!setup) return undefined;
  const probed = await probeVision(setup, clock, entry);
  return { finding: findingOf(probed), bytes: probed.kind === 'ready' ? (probed.bytes ?? 0) : 0 };
}

function findingOf(probed: Probed): Finding {
  if (probed.kind === 'unable') {
    return { what: 'images', ok: false, needed: true, says: probed.reason };
  }
  const { filtered, bounded, ownUser } = probed.facts.confinement;
  const all = [
    filtered ? 'system calls filtered' : 'system calls not filtered',
    bounded ? 'memory bounded' : 'memory not bounded',
    ...(ownUser ? ['a user of its own'] : []),
  ];
  const memory = probed.bytes === undefined ? '' : `, takes ${size(probed.bytes)} of memory`;
  return {
    what: 'images',
    ok: filtered && bounded,
    needed: false,
    says: `the projector fits${memory}; ${all.join(', ')}`,
  };
}

/** For `doctor`. */
export function imageChecks(id: string, findings: readonly Finding[]): Check[] {
  return findings
    .filter(({ what }) => what === 'images')
    .map(({ ok, says }): Check => {
      const what = `images of ${id}`;
      return ok ? { what, level: 'ok', says } : { what, level: 'warn', says, advice: 'docs/vision.md' };
    });
}
