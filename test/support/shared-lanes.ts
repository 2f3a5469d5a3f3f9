/**
 * Prompt hosts that the tests of one process share. A host takes a second of processor time to start, and most tests
 * that run the sidecar in their own process need no special one. A group of test files shares them (group-files.ts),
 * and a file that asks for it. Otherwise each sidecar has its own.
 */
import { realpathSync } from 'node:fs';
import { PromptLanes, type Prompts, type PromptLanesOptions } from '../../sidecar/prompts/lanes.js';

/** Configurations whose hosts are kept: two processes each, of about 100 MB. */
const MOST = 3;

/**
 * Models that tests name, with the context that in-process.ts gives them: one pair of hosts serves every selection of
 * them.
 */
const COMMON_CONTEXT = 1024;
const COMMON_MODELS: readonly (readonly ['chat' | 'decision', readonly string[]])[] = [
  ['chat', ['chat', 'narrow', 'mortal', 'm', 'c', 's', 'secret', 'open', 'gated', 'one', 'two', 'hosted', 'cold-chat']],
  ['decision', ['decide', 'd', 'gated-decide', 'cold-decide']],
];

interface Kept {
  readonly lanes: PromptLanes;
  /** The hooks of each sidecar that uses them now. */
  readonly users: Set<NonNullable<PromptLanesOptions['hooks']>>;
}

/** By configuration, the least recently used first. */
const kept = new Map<string, Kept>();
let shares: 'not' | 'alike' | 'common' = 'not';

/**
 * From now on sidecars with one configuration in this process share hosts, until `owner` ends. `common`: the hosts have
 * all common models, which is worth loading them if many files run.
 */
export function shareLanes(owner: { teardown(fn: () => void): void }, which: 'alike' | 'common' = 'alike'): void {
  // A group shares more of them, until it ends.
  if (shares === 'common') return;
  shares = which;
  owner.teardown(() => {
    for (const { lanes } of kept.values()) lanes.close();
    kept.clear();
  });
}

/** The function from which a sidecar in this process gets its prompt hosts; undefined: each has its own. */
export function sharedLanes(): typeof lanesFor | undefined {
  return shares === 'not' ? undefined : lanesFor;
}

function lanesFor({ hooks = {}, ...options }: PromptLanesOptions): Prompts {
  // Each test links to the one model from its own folder.
  const models = widened(options.models.map((model) => ({ ...model, file: realpathSync(model.file) })));
  const { workers, silenceMs, maxQueued, inlineBytes } = options;
  const key = JSON.stringify({ models, workers, silenceMs, maxQueued, inlineBytes });
  const found = kept.get(key) ?? open({ ...options, models });
  kept.delete(key);
  kept.set(key, found);
  found.users.add(hooks);
  closeOldest();
  const { lanes, users } = found;
  let isOwn = false;
  return {
    ready: () => lanes.ready(),
    open: (form, bytes, owner, wanted) => lanes.open(form, bytes, owner, wanted),
    startNext: (models) => {
      // Hosts that are forked later read files of this test, which go with its folder: no other sidecar may get them.
      isOwn = kept.delete(key) || isOwn;
      return lanes.startNext(models);
    },
    switchToNext: () => lanes.switchToNext(),
    retireNext: () => lanes.retireNext(),
    retireOthers: () => lanes.retireOthers(),
    ofBatches: lanes.ofBatches,
    forgetBatches: () => lanes.forgetBatches(),
    close: () => {
      users.delete(hooks);
      if (isOwn) lanes.close();
    },
    get models() {
      return lanes.models;
    },
    get states() {
      return lanes.states;
    },
  };
}

/** All common models, if no other model is used. */
function widened(models: PromptLanesOptions['models']): PromptLanesOptions['models'] {
  const [first] = models;
  const isCommon = ({ id, kind, file, contextPerSeat, template }: (typeof models)[number]): boolean =>
    contextPerSeat === COMMON_CONTEXT &&
    file === first?.file &&
    template === undefined &&
    COMMON_MODELS.some(([common, ids]) => common === kind && ids.includes(id));
  if (shares !== 'common' || first === undefined || !models.every(isCommon)) return models;
  return COMMON_MODELS.flatMap(([kind, ids]) =>
    ids.map((id) => ({ id, kind, file: first.file, contextPerSeat: COMMON_CONTEXT })),
  );
}

function open(options: PromptLanesOptions): Kept {
  const users: Kept['users'] = new Set();
  const restart = (why: string, delayMs: number, lane: 'short' | 'long' | 'batch'): void => {
    for (const user of users) user.restart?.(why, delayMs, lane);
  };
  return { lanes: new PromptLanes({ ...options, hooks: { restart } }), users };
}

/** Those that a sidecar still uses stay. */
function closeOldest(): void {
  for (const [key, { lanes, users }] of kept) {
    if (kept.size <= MOST) return;
    if (users.size > 0) continue;
    lanes.close();
    kept.delete(key);
  }
}
