/**
 * Prompt hosts that the tests of one process share. A host takes a second of processor time to start, and most tests that
 * run the sidecar in their own process want nothing special of it. Only a group of test files shares (group-files.ts): a
 * file that is run alone has hosts of its own for each sidecar.
 */
import { realpathSync } from 'node:fs';
import { PromptLanes, type Prompts, type PromptLanesOptions } from '../../sidecar/prompts/lanes.js';

/** Configurations whose hosts are kept: two processes each, of about 100 MB. */
const MOST = 3;

interface Kept {
  readonly lanes: PromptLanes;
  /** What each sidecar that uses them now wants to know. */
  readonly users: Set<NonNullable<PromptLanesOptions['hooks']>>;
}

/** By configuration, the one used longest ago first. */
const kept = new Map<string, Kept>();
let shares = false;

/** From now on sidecars in this process share, until `owner` ends. */
export function shareLanes(owner: { teardown(fn: () => void): void }): void {
  shares = true;
  owner.teardown(() => {
    for (const { lanes } of kept.values()) lanes.close();
    kept.clear();
  });
}

/** What a sidecar in this process gets its prompt hosts from; undefined: each has its own. */
export function sharedLanes(): typeof lanesFor | undefined {
  return shares ? lanesFor : undefined;
}

function lanesFor({ hooks = {}, ...options }: PromptLanesOptions): Prompts {
  // Each test links to the one model from a folder of its own.
  const models = options.models.map((model) => ({ ...model, file: realpathSync(model.file) }));
  const { workers, silenceMs, maxQueued, inlineBytes } = options;
  const key = JSON.stringify({ models, workers, silenceMs, maxQueued, inlineBytes });
  const found = kept.get(key) ?? open({ ...options, models });
  kept.delete(key);
  kept.set(key, found);
  found.users.add(hooks);
  closeOldest();
  const { lanes, users } = found;
  return {
    ready: () => lanes.ready(),
    open: (route, bytes, payer) => lanes.open(route, bytes, payer),
    close: () => void users.delete(hooks),
    get states() {
      return lanes.states;
    },
  };
}

function open(options: PromptLanesOptions): Kept {
  const users: Kept['users'] = new Set();
  const restart = (why: string, delayMs: number, lane: 'short' | 'long'): void => {
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
