import { madeBytes, type MadeMask } from '../grammar/mask.js';
import { MAX_MASKS } from '../grammar/mask-memory.js';
import type { AddonPlaces, AddonStanding } from './addon.js';

/** The masks of one numbering of a grammar's places. */
interface Numbering {
  readonly places: AddonPlaces;
  readonly masks: Map<number, MadeMask>;
  bytes: number;
  /** The number of the call that used it last. */
  used: number;
}

/** Calls of {@link FollowedMasks.from} after which a grammar is not used: some of each seat's. */
const UNUSED_CALLS = 1024;

/**
 * The masks of places that replies stood at, through which they and the addon's runs follow their texts. Bounded: where there is no room,
 * those of grammars that are not used are dropped, and further places are not followed.
 */
export class FollowedMasks {
  readonly #newPlaces: (() => AddonPlaces) | undefined;
  /** By {@link MaskPlace.of}; the one used last is last. */
  readonly #numberings = new Map<string, Numbering>();
  #bytes = 0;
  #calls = 0;

  /** `newPlaces`: makes what a run follows replies through; absent: nothing is followed. */
  constructor(newPlaces?: () => AddonPlaces) {
    this.#newPlaces = newPlaces;
  }

  /** From where a run may follow a reply that stands where this was made; undefined where it may not. */
  from(made: MadeMask): Pick<AddonStanding, 'places' | 'at'> | undefined {
    const { mask, isNarrow, place } = made;
    if (!place || !this.#newPlaces) return undefined;
    const { of, at, leaves } = place;
    const numbering = this.#numberings.get(of) ?? { places: this.#newPlaces(), masks: new Map(), bytes: 0, used: 0 };
    numbering.used = this.#calls += 1;
    this.#numberings.delete(of);
    this.#numberings.set(of, numbering);
    if (!numbering.masks.has(at)) {
      const bytes = madeBytes(made) + mask.byteLength + leaves.byteLength;
      if (!this.#hasRoom(bytes)) return undefined;
      this.#bytes += bytes;
      numbering.bytes += bytes;
      numbering.masks.set(at, made);
      numbering.places.know(at, mask, isNarrow, leaves);
    }
    return { places: numbering.places, at };
  }

  #hasRoom(bytes: number): boolean {
    for (const [of, oldest] of this.#numberings) {
      if (this.#bytes + bytes <= 2 * MAX_MASKS || this.#calls - oldest.used < UNUSED_CALLS) break;
      this.#numberings.delete(of);
      this.#bytes -= oldest.bytes;
    }
    return this.#bytes + bytes <= 2 * MAX_MASKS;
  }

  /** What is known of where a text stands after a token that may come where this was made. */
  after({ place }: MadeMask, token: number): MadeMask | undefined {
    if (!place) return undefined;
    let { at } = place;
    for (let i = 0; i < place.leaves.length; i += 2) if (place.leaves[i] === token) at = place.leaves[i + 1] ?? -1;
    return this.#numberings.get(place.of)?.masks.get(at);
  }
}
