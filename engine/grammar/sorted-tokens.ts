/** The tokens of a vocabulary, in the order of their bytes. */
export interface SortedTokens {
  readonly bytes: Uint8Array;
  /** Where each token's bytes begin, by id; one more for the end of the last. */
  readonly starts: Uint32Array;
  /** Ids of those that have bytes. */
  readonly order: Uint32Array;
  /** Bytes that each has in common with the one before it in `order`. */
  readonly common: Uint32Array;
  /** For each in `order`, the next one that has fewer bytes in common with the one before it; the number of them: none. */
  readonly leaps: Uint32Array;
  /** Ids of those that have none, but for `ends`. */
  readonly empty: Uint32Array;
  /** End tokens, whatever their bytes. */
  readonly ends: Uint32Array;
  /** Of the longest. */
  readonly longest: number;
}

/** Sorts a vocabulary. `bytes`: of all tokens, one after the other; `starts`: where each token's begin, and the last one's end. */
export function sortedTokens(bytes: Uint8Array, starts: Uint32Array, ends: Uint32Array): SortedTokens {
  const ending = new Set(ends);
  const ids = Uint32Array.from({ length: starts.length - 1 }, (_, id) => id).filter((id) => !ending.has(id));
  const of = (id: number): Uint8Array => bytes.subarray(starts[id], starts[id + 1]);
  // llama.cpp treats tokens that begin with U+0000 as empty.
  const isEmpty = (id: number): boolean => starts[id] === starts[id + 1] || bytes[starts[id] ?? 0] === 0;
  // Of most pairs the first four bytes tell, without two views of the bytes; where a token ends before, 0 stands for the rest.
  const heads = Uint32Array.from({ length: starts.length - 1 }, (_, id) => headOf(of(id)));
  const order = ids
    .filter((id) => !isEmpty(id))
    .sort((a, b) => (heads[a] ?? 0) - (heads[b] ?? 0) || Buffer.compare(of(a), of(b)));
  let longest = 0;
  const common = order.map((id, i) => {
    const [one, before] = [of(id), i === 0 ? new Uint8Array(0) : of(order[i - 1] ?? 0)];
    longest = Math.max(longest, one.length);
    let same = 0;
    while (same < before.length && one[same] === before[same]) same += 1;
    return same;
  });
  return { bytes, starts, order, common, leaps: leapsOf(common), empty: ids.filter(isEmpty), ends, longest };
}

/** The first four bytes as a number. */
function headOf([a = 0, b = 0, c = 0, d = 0]: Uint8Array): number {
  return ((a << 24) | (b << 16) | (c << 8) | d) >>> 0;
}

/** From the last to the first: each leap is found through those after it. */
function leapsOf(common: Uint32Array): Uint32Array {
  const leaps = new Uint32Array(common.length);
  for (let i = common.length - 1; i >= 0; i--) {
    let next = i + 1;
    while (next < common.length && (common[next] ?? 0) >= (common[i] ?? 0)) next = leaps[next] ?? common.length;
    leaps[i] = next;
  }
  return leaps;
}
