import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { planHash, writeRandomModel, type ModelPlan } from './random-model.js';
import { planFor } from './recipes.js';

/**
 * The path of the small model of random weights, made in `dir` if it is not there yet: it talks at length and fast, and
 * means nothing, which is what many tests and benches want. Any number of
 * processes may ask at once: each that finds it missing makes it under a name of its own, and the last rename wins with the same
 * bytes. Rejects when the folder cannot be written. Loads no native code.
 */
export async function ensureEmbeddedModel(dir: string): Promise<string> {
  return await ensureModel(dir, planFor('embedded'));
}

/** The same for any plan. The file's name carries the plan's hash, so that a changed plan makes a new file. */
export async function ensureModel(dir: string, plan: ModelPlan): Promise<string> {
  const path = pathOf(dir, plan);
  if (!(await exists(path))) await writeRandomModel(path, plan);
  return path;
}

function pathOf(dir: string, plan: ModelPlan): string {
  return join(dir, `${plan.name}-${planHash(plan)}.gguf`);
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}
