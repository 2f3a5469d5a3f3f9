import { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { Policy } from './door.js';

/** The sidecar’s queue with its default settings. */
export const ours: Policy = {
  name: 'ra-sidecar',
  open: ({ clock, random, seats, patienceMs }) =>
    new SeatQueue({
      clock,
      random,
      seats,
      config: { maxWaitMs: patienceMs, waitingPerSeat: 8, waitingBytes: Infinity },
    }),
};
