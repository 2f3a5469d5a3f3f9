/**
 * What grammars keep in memory while masks are made of them, and its bounds. An engine has two stores of them: one for
 * replies whose grammar is evaluated within the step, one in the thread for expensive grammars.
 */

const MIB = 2 ** 20;

/**
 * Bytes of what is kept, measured on Node 20: of a place, of a set besides its members, of the table of one whose characters
 * lead to several sets, of an entry of a map, and of a mask besides its bits.
 */
export const BYTES = { place: 96, set: 480, member: 12, table: 1200, entry: 64, mask: 256 } as const;

/** Bytes that the {@link Reach} of all grammars of a store may take; one that exceeds its share is rebuilt from the current texts. */
export const MAX_REACH = 16 * MIB;
/** No grammar's share is smaller than this. */
export const LEAST_REACH = MIB;
/** A reach may grow beyond its share by this much while one mask is made. */
export const MAX_GROWTH = 32 * MIB;
/**
 * Bytes that the masks of all grammars of a store may take, but for one mask of each grammar. Those that replies are followed through may take
 * twice as many, with their copies in the addon.
 */
export const MAX_MASKS = 8 * MIB;
/** Tokens after which a text is at another place. A mask with more, as of a text whose characters are counted, is not followed. */
export const MAX_LEAVES = 4096;
/** Bytes that the programs of a store may take, but for those of running replies and the last one. */
export const MAX_PROGRAMS = 8 * MIB;
/** Bytes of the program of the largest grammar that is compiled; test/engine/grammar/mask-memory.test.ts makes such ones. */
export const MAX_PROGRAM = 3 * MIB;

/** Grammars that the first store keeps, the most recently used ones, whether replies use them or not. */
export const MAX_KEPT = 32;
/** Grammars that the thread keeps although no reply uses them, the most recently used ones. */
export const MAX_IDLE = 8;

/** Bytes of one token in a sorted vocabulary: its text, its place, and what searches need; each store has one. */
const SORTED_BYTES = 32;
/** Of a running reply: the last mask as its grammar gave it, and as the thread sent it. */
const MASKS_A_SEAT = 2;
/** The addon's: of the one mask of a grammar that is no longer kept, of the place that a run is at, and without control tokens. */
const COPIES_A_SEAT = 3;

/** Bytes of a mask, and of the same without control tokens. */
export function maskBytes(vocabulary: number): number {
  return BYTES.mask + 2 * Math.ceil(vocabulary / 8);
}

/** Bytes of the addon's copy of a mask. */
function copyBytes(vocabulary: number): number {
  return Math.ceil(vocabulary / 8) + 8 * MAX_LEAVES;
}

/** The most that an engine's grammars take, bytes: both stores, however many replies run, and each seat besides. */
export function grammarNeed(vocabulary: number) {
  const store = MAX_GROWTH + MAX_MASKS + MAX_PROGRAMS + SORTED_BYTES * vocabulary;
  const reaches = Math.max(MAX_REACH, MAX_KEPT * LEAST_REACH) + Math.max(MAX_REACH, MAX_IDLE * LEAST_REACH);
  return {
    stores:
      2 * store + 2 * MAX_MASKS + reaches + (MAX_KEPT + MAX_IDLE) * (maskBytes(vocabulary) + copyBytes(vocabulary)),
    perSeat: LEAST_REACH + MAX_PROGRAM + MASKS_A_SEAT * maskBytes(vocabulary) + COPIES_A_SEAT * copyBytes(vocabulary),
  };
}
