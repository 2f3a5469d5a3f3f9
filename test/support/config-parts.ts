/** Parts of a sidecar’s config for tests that a busy machine must not fail. */
import { PATIENT_MS } from './patience.js';

/** The `queue`: no request is refused for its wait. */
export const PATIENT_QUEUE = { maxWaitMs: PATIENT_MS };

/** The `stream`: one begins without a token, with the comment {@link KEEP_ALIVE}. */
export const KEPT_ALIVE = { keepAliveMs: 100 };
export const KEEP_ALIVE = ': keep-alive';
