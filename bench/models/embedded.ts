import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { planHash, writeRandomModel, type ModelPlan } from './random-model.js';
import { planFor } from './recipes.js';

/**
 * The path of the small model of random weights, created in `dir` if it does not exist: its replies are long and fast,
 * without meaning, which is what many tests and benches need. Any number of processes may call at once: each that finds
 * it missing creates it under its own name, and the last rename wins with the same bytes. Rejects if the folder cannot
 * be written. Loads no native code.
 */
export async function ensureEmbeddedModel(dir: string): Promise<string> {
  return await ensureModel(dir, planFor('embedded'));
}

/** The same for any plan. The file’s name contains the plan’s hash, so that a changed plan creates a new file. */
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
