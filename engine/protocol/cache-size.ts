/** What prefix caches take where their size is not set. The engine and `doctor` reckon with the same numbers. */

/** At most this share of the memory that is free when the model is loaded, for all engines of the sidecar together. */
export const CACHE_SHARE = 1 / 4;

/** One engine's cache, at most; bytes. */
export const MOST_CACHE_BYTES = 8 * 2 ** 30;
