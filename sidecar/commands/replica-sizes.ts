/** What `doctor` and `models verify` check of the configured models: each of their replicas by itself, on its own devices. */
import type { ModelConfig } from '../config/config.js';
import { sharesCacheRoom } from '../app/compose-engine.js';
import { planOf } from '../app/compose-replicas.js';
import { nameOf } from '../app/replica-plans.js';
import type { ToSize } from './sizing.js';
import { setupOf } from '../app/sized-setup.js';

/** A replica to check, or why the model's replicas cannot be planned. */
export type ToCheck = { readonly model: ModelConfig } & (
  { readonly kind: 'replica'; readonly toSize: ToSize } | { readonly kind: 'unfit'; readonly why: string }
);

/** The replicas of each model, in order. `models`: with the paths of their files. */
export async function replicasToSize(models: readonly ModelConfig[]): Promise<ToCheck[]> {
  const all = (await Promise.all(models.map(ofModel))).flat();
  const engines = all.filter(({ kind, model }) => kind === 'replica' && sharesCacheRoom(model)).length;
  return all.map((one) => (one.kind === 'replica' ? { ...one, toSize: sharing(one.toSize, engines) } : one));
}

/** Engines whose caches have no set size share what is free. */
function sharing(toSize: ToSize, engines: number): ToSize {
  const { prefixCache } = toSize.setup;
  return prefixCache ? { ...toSize, setup: { ...toSize.setup, prefixCache: { ...prefixCache, engines } } } : toSize;
}

async function ofModel(model: ModelConfig): Promise<ToCheck[]> {
  const plan = await planOf(model, model.file);
  if (plan.kind === 'unfit') return [{ kind: 'unfit', model, why: plan.why }];
  return plan.replicas.map(({ devices, environment, ...sizes }, index) => ({
    kind: 'replica',
    model,
    toSize: {
      id: plan.replicas.length === 1 ? model.id : `${model.id}, ${nameOf(index, devices)}`,
      setup: { ...setupOf(model), ...sizes },
      model,
      lazy: model.load === 'lazy',
      devices,
      environment,
      again: index > 0,
    },
  }));
}
