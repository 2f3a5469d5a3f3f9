/**
 * In the place of the defaults for waits that a loaded machine passes: for a seat, and for a prompt host's answer. Tests that are
 * about such a wait set their own. Ms.
 */
export const PATIENT_MS = 600_000;
