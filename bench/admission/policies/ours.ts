import { createFairQueue } from '../../../sidecar/admission/fair-queue.js';
import type { Policy } from './door.js';

/** What the sidecar ships, with the config that it ships with. */
export const ours: Policy = {
  name: 'ra-sidecar',
  open: ({ clock, random, seats, patienceMs }) =>
    createFairQueue({
      clock,
      random,
      seats,
      config: { maxWaitMs: patienceMs, waitingPerSeat: 8, waitingBytes: Infinity },
    }),
};
