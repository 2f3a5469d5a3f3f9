/** Composes the plans of all models' replicas, by what inspectors find of the devices. */
import type { Config, ModelConfig } from '../config/config.js';
import { childEnvironment } from '../lib/child-process.js';
import { inspect } from '../engine-client/inspector.js';
import { systemClock } from '../lib/clock.js';
import { gpuUuids } from './gpu-uuids.js';
import { setupOf } from './sized-setup.js';
import { planReplicas, type Inspectors, type Planned, type ReplicaPlan } from './replica-plans.js';

/** Asks real inspectors, each a process. */
const inspectors: Inspectors = {
  machine: (gpu, environment) => inspect('machine', { gpu }, { clock: systemClock, environment }),
  fits: async (model, environment) => {
    const question = { setup: setupOf(model), load: false, taken: { memory: 0, gpuMemory: 0 } };
    const asked = await inspect('model', question, { clock: systemClock, environment });
    return asked.kind === 'answer' && asked.answer.findings.every(({ ok, needed }) => ok || !needed);
  },
  uuids: () => gpuUuids(childEnvironment()['CUDA_DEVICE_ORDER']),
};

/** The replicas of each model by id. `files`: paths of the configured files. Rejects with one line if a device is not there. */
export async function replicasOf(
  { models }: Pick<Config, 'models'>,
  files: ReadonlyMap<string, string>,
): Promise<ReadonlyMap<string, readonly ReplicaPlan[]>> {
  const all = await Promise.all(models.map((model) => planOf(model, files.get(model.file) ?? model.file)));
  return new Map(
    all.map((plan, i): [string, readonly ReplicaPlan[]] => {
      const id = models[i]?.id ?? '';
      if (plan.kind === 'unfit') throw new Error(`model ${id} cannot be served: ${plan.why}`);
      return [id, plan.replicas];
    }),
  );
}

/** The replicas of one model; `file`: its path. */
export function planOf(model: ModelConfig, file: string): Promise<Planned> {
  return planReplicas({ ...model, file }, inspectors);
}
