/**
 * Replaces the weights of a model, replica by replica, while it serves.
 *
 * A replica's next process is loaded beside the present one, which keeps its jobs and takes no new ones once the other is ready.
 * Where memory does not allow two, a replica ends its jobs first while the others serve. No request is refused for it: one whose
 * prompt was made with another tokenizer or template than that of its replica has it made again, by prompt hosts of either
 * generation. Each engine process has one version for its whole life, so each reply and each prefix has too.
 */
import { writtenInPlace, type HashedFile } from '../../engine/protocol/file-key.js';
import type { Reload, Reloaded } from '../api/operators.js';
import type { WeightFiles } from '../engine-client/weight-files.js';
import type { FirstStart } from '../prompts/client.js';
import type { Prompts } from '../prompts/lanes.js';
import type { PromptModel } from '../prompts/messages.js';
import type { Log } from '../telemetry/logger.js';
import { warnOfToolFormats, type Hosted } from './hosted-models.js';

type Model = Pick<Hosted, 'id' | 'engine'>;

export interface ReloadParts {
  readonly models: ReadonlyMap<string, Model>;
  readonly files: Pick<WeightFiles, 'of'>;
  readonly prompts: Pick<Prompts, 'startNext' | 'switchToNext' | 'retireNext' | 'retireOthers'>;
  /** What the first prompt hosts were started with. */
  readonly promptModels: readonly PromptModel[];
  readonly log: Log;
}

/** What earlier reloads left. */
interface ReloadState {
  /** What the present prompt hosts were started with. */
  promptModels: readonly PromptModel[];
  /** Models whose replicas have weights of two versions, so that prompts of both kinds are needed. */
  readonly mixed: Set<string>;
}

/** Reloads one model at a time; a second call meanwhile fails. */
export function reloader(parts: ReloadParts): Reload {
  const state: ReloadState = { promptModels: parts.promptModels, mixed: new Set() };
  let busy = false;
  return async (id, file) => {
    const model = parts.models.get(id);
    if (model === undefined) return { kind: 'unknown-model' };
    if (busy) return failed('another reload is running');
    busy = true;
    try {
      const path = file ?? model.engine.setups[0]?.file ?? '';
      return await replaceAll(parts, model, path, state);
    } finally {
      busy = false;
    }
  };
}

async function replaceAll(
  { files, prompts, log }: ReloadParts,
  model: Model,
  file: string,
  state: ReloadState,
): Promise<Reloaded> {
  const { engine } = model;
  if (engine.setups.some(({ remote }) => remote)) return failed('its weights are on an external server');
  const hashed = await files.of(file);
  if (hashed.kind === 'unread') return failed(`${file} ${hashed.why}`);
  const { file: weights } = hashed;
  const { version } = weights;
  const present = engine.setups.map((setup) => setup.weights);
  if (present.some((known) => known && writtenTo(known, weights)))
    return failed(
      `${file} was written to in place while engines use it: write new weights to another file, and rename that to this one`,
    );
  // By the key, not the version: a file whose content was written over and back may still be mapped as it was in between.
  const stale = (at: number): boolean =>
    present[at]?.key !== weights.key || engine.setups[at]?.file !== file || engine.replicas[at]?.state !== 'ready';
  const wanted = present.map((_, at) => at).filter(stale);
  if (wanted.length === 0) return { kind: 'reloaded', version, replicas: 0, file };
  const promptModels = state.promptModels.map((one) => (one.id === model.id ? { ...one, file } : one));
  const prepared = await prompts.startNext(promptModels);
  const problem = problemOf(prepared, model.id);
  if (problem !== undefined) {
    prompts.retireNext();
    return failed(problem);
  }
  if (prepared.kind === 'ready')
    warnOfToolFormats(
      prepared.models.filter(({ id }) => id === model.id),
      log,
    );
  for (const [done, replica] of wanted.entries()) {
    const why = await replace(model, replica, { file, weights });
    if (why !== undefined) {
      // Until all replicas agree, prompts of both kinds are needed.
      if (done === 0) prompts.retireNext();
      else state.mixed.add(model.id);
      const so = done === 0 ? 'nothing was changed' : `${done} of ${wanted.length} replicas have the new weights`;
      log.error('weights not reloaded', { model: model.id, replica, reason: why });
      return failed(`replica ${replica}: ${why} (${so})`);
    }
    log.info('weights reloaded', { model: model.id, replica, version });
    // From then on at least as many of these replicas want the new prompts as the old ones.
    if (done + 1 === Math.ceil(wanted.length / 2)) {
      prompts.switchToNext();
      state.promptModels = promptModels;
    }
  }
  state.mixed.delete(model.id);
  if (state.mixed.size === 0) prompts.retireOthers();
  return { kind: 'reloaded', version, replicas: wanted.length, file };
}

/** Undefined if it serves with them. */
async function replace(
  { engine }: Model,
  replica: number,
  changes: { readonly file: string; readonly weights: HashedFile },
): Promise<string | undefined> {
  const beside = await engine.replace(replica, changes, 'beside');
  if (beside.kind === 'replaced') return undefined;
  const others = engine.replicas.some(({ state }, at) => at !== replica && state === 'ready');
  if (!beside.lacksMemory) return beside.why;
  if (!others) return `${beside.why}; there is no other replica that would serve while this one makes room`;
  const after = await engine.replace(replica, changes, 'after');
  return after.kind === 'replaced' ? undefined : after.why;
}

/** The same file on the disk with another content. */
function writtenTo(known: HashedFile, now: HashedFile): boolean {
  return known.version !== now.version && writtenInPlace(known.key, now.key);
}

function problemOf(start: FirstStart, id: string): string | undefined {
  if (start.kind === 'unable') return 'prompt hosts with its tokenizer could not be started';
  return start.models.find((model) => model.id === id)?.problem;
}

function failed(why: string): Reloaded {
  return { kind: 'failed', why };
}
