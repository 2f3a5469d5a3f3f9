import type { Part } from './decoder.js';
import type { PlacedImage } from '../protocol/prompt.js';

const NONE = new Float32Array(0);

interface Arrival {
  readonly arrived: Promise<void>;
  readonly settle: () => void;
}

/** The embeddings of a job's images: asked for once each, and kept until no item of the job needs them. */
export class Embeddings {
  readonly #images: readonly PlacedImage[];
  /** The job has one item. */
  readonly #once: boolean;
  readonly #values = new Map<PlacedImage, Float32Array>();
  readonly #arrivals = new Map<PlacedImage, Arrival>();
  readonly #asked = new Set<PlacedImage>();

  constructor(images: readonly PlacedImage[], once: boolean) {
    this.#images = images;
    this.#once = once;
  }

  /** Returns those of these indexes that were not asked for before. */
  ask(indexes: readonly number[]): readonly number[] {
    return indexes.filter((index) => {
      const image = this.#images[index];
      if (!image || this.#asked.has(image)) return false;
      this.#asked.add(image);
      let settle = (): void => undefined;
      const arrived = new Promise<void>((resolve) => (settle = resolve));
      this.#arrivals.set(image, { arrived, settle });
      return true;
    });
  }

  /** Embeddings that were not asked for are ignored. */
  supply(index: number, values: Float32Array): void {
    const image = this.#images[index];
    const arrival = image && this.#arrivals.get(image);
    if (!arrival) return;
    this.#arrivals.delete(image);
    this.#values.set(image, values);
    arrival.settle();
  }

  /** Settles when the embeddings of an image have arrived; undefined if they have. */
  arrivalOf(image: PlacedImage): Promise<void> | undefined {
    return this.#arrivals.get(image)?.arrived;
  }

  /** A part of these ids of the image, from `position` of the prompt on. A decoder refuses embeddings of another number. */
  part(sequence: number, placed: PlacedImage, position: number, tokens: Uint32Array): Part {
    const { at, image } = placed;
    const all = this.#values.get(placed) ?? NONE;
    const { positions, columns, whole } = image;
    const of = image.tokens.length;
    const width = all.length / of;
    const index = position - at;
    if (this.#once && index + tokens.length === of) this.#values.delete(placed);
    const values = all.subarray(index * width, (index + tokens.length) * width);
    return { kind: 'embeddings', sequence, tokens, values, image: { index, of, positions, columns, whole } };
  }
}
