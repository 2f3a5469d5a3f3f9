/** Parts of a sidecar’s config for tests that a busy machine must not fail. */
import { PATIENT_MS } from './patience.js';

/** The `queue`: no request is refused for its wait. */
export const PATIENT_QUEUE = { maxWaitMs: PATIENT_MS };

/** The `queue`: none waits for a model that loads either. */
export const REFUSES_COLD = { ...PATIENT_QUEUE, waitForLoad: false };

/** The `engine`: one that a test has stopped is not considered hung. */
export const PATIENT_ENGINE = { hangMs: PATIENT_MS };

/** The `development`: the queue refuses none of those that wait behind a stopped engine, as it does once it has learned that it stands. */
export const NOTHING_LEARNED = { validateAnswers: true, learnedQueue: false };
