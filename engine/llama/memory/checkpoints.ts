import type { Needs } from './estimate.js';
import { totalOf, usableOf } from './verdict.js';

/** Of the past state of all seats: two full ones a seat. Most checkpoints are of less, since they leave out what can be truncated. */
const STATES_A_SEAT = 2;

/** At most this share of what is left when the model is loaded. */
const SHARE = 1 / 4;

/** More has not been seen to be of use; bytes. */
const MOST = 8 * 2 ** 30;

/**
 * What a model takes with its checkpoints, which lie in host memory. `asked`: bytes; undefined: by the size of its past state
 * and what is free. 0 where its state can be truncated at any position, which needs none.
 */
export function withCheckpoints(
  needs: Needs,
  seats: number,
  appendOnly: boolean,
  asked: number | undefined,
  free: number,
): Needs {
  if (!appendOnly) return needs;
  const state = (needs.cpu.perSeat + needs.gpu.perSeat) * seats;
  const left = Math.max(0, usableOf(free) - totalOf(needs.cpu, seats));
  const checkpoints = asked ?? Math.floor(Math.min(STATES_A_SEAT * state, SHARE * left, MOST));
  return { ...needs, cpu: { ...needs.cpu, checkpoints } };
}
