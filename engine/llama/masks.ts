import { Worker } from 'node:worker_threads';
import type { KnownPlaces, MaskLimits, TokenBits } from '../grammar/mask.js';
import { maskBytes, MAX_MASKS } from '../grammar/mask-memory.js';
import { EngineFault } from '../scheduler/faults.js';

/** A vocabulary as the thread takes it. */
export interface MaskVocabulary {
  /** Of all tokens, one after the other. */
  readonly bytes: Uint8Array;
  /** Where each token's begin, and where the last one's end. */
  readonly starts: Uint32Array;
  /** End tokens. */
  readonly ends: Uint32Array;
}

export type MaskRequest =
  /** `gbnf`: in the first request of a reply. `read`: tokens of it since the last one. */
  | { readonly kind: 'next'; readonly id: number; readonly gbnf?: string; readonly read: readonly number[] }
  | { readonly kind: 'release'; readonly id: number };

/** A place of one of the thread's grammars. */
export interface MaskPlace {
  /** The thread's number for the grammar's numbering of its places: places of one numbering alone are the same by their numbers. */
  readonly of: number;
  readonly at: number;
  /** As {@link KnownPlaces} gets them. */
  readonly leaves: Int32Array;
}

/** `isNarrow`: as {@link MaskConstraint} has it. `place`: where the text stands; absent within a character, and if it has too many leaves. */
export interface MadeMask {
  readonly id: number;
  readonly kind: 'mask';
  readonly mask: TokenBits;
  readonly isNarrow: boolean;
  readonly place?: MaskPlace | undefined;
}

export type MaskAnswer =
  | MadeMask
  /** `reason`: without any of a caller's text. */
  | { readonly id: number; readonly kind: 'fault'; readonly reason: string };

/** The functions of the thread that are used here. */
export type MaskThread = Pick<Worker, 'postMessage' | 'on' | 'ref' | 'unref'>;

/** One reply that masks constrain. */
export interface MaskConstraint {
  /**
   * Settles when the next token can be sampled; never rejects. Undefined if it can, and {@link mask} has the allowed
   * tokens.
   */
  readonly pending: Promise<void> | undefined;
  /** Throws an {@link EngineFault} if the grammar cannot be used, or while it is pending. */
  readonly mask: TokenBits;
  /**
   * Few characters may follow. A grammar that is looked at within the step knows the same places, so that a reply that changes over to
   * masks draws the same tokens. Throws as {@link mask}.
   */
  readonly isNarrow: boolean;
  /** From where a run may follow the reply; undefined if it may not. Throws as {@link mask}. */
  readonly from: { readonly places: KnownPlaces; readonly at: number } | undefined;
  /** This token, which {@link mask} has, was sampled. */
  accept(token: number): void;
  /** Idempotent. */
  release(): void;
}

/**
 * Computes which tokens grammars allow, on a separate thread, while other replies continue to decode: llama.cpp's own
 * check within a step would delay all that share the step. Replies take turns in the order of their requests, one at a
 * time, so that grammars use at most one core. A reply that stays at places of which the thread has sent the masks goes on without it.
 * The thread starts at first use and does not keep the process alive while idle; after a fault the next request starts another.
 */
export class Masks {
  readonly #vocabulary: MaskVocabulary;
  readonly #start: (vocabulary: MaskVocabulary) => MaskThread;
  #thread: MaskThread | undefined;
  /** Replies that wait for their turn: one entry each, so no more than there are sequences. */
  readonly #waiting = new Set<QueuedConstraint>();
  #current: QueuedConstraint | undefined;
  #lastId = 0;
  readonly #sent: SentMasks | undefined;

  /** `vocabulary`: each thread gets a copy. `places`: as {@link MaskLimits} has them; without them replies are not followed. */
  constructor(vocabulary: MaskVocabulary, places?: MaskLimits['places'], start = startThread) {
    this.#vocabulary = vocabulary;
    this.#start = start;
    this.#sent = places && new SentMasks(places);
  }

  /** Constrains a reply from now on by `gbnf`, which has already matched `tokens`. */
  constrain(gbnf: string, tokens: readonly number[]): MaskConstraint {
    const constraint = new QueuedConstraint(++this.#lastId, gbnf, tokens, this.#sent, {
      ask: () => {
        this.#waiting.add(constraint);
        this.#next();
      },
      release: () => {
        this.#waiting.delete(constraint);
        if (constraint.isKnown) this.#thread?.postMessage({ kind: 'release', id: constraint.id });
      },
    });
    constraint.ask();
    return constraint;
  }

  #next(): void {
    const [next] = this.#waiting;
    if (this.#current || !next) return;
    this.#waiting.delete(next);
    this.#current = next;
    try {
      this.#thread ??= this.#started();
      this.#thread.ref();
      this.#thread.postMessage(next.request());
    } catch {
      this.#failed();
    }
  }

  #started(): MaskThread {
    const thread = this.#start(this.#vocabulary);
    thread.on('message', (answer: MaskAnswer) => {
      thread.unref();
      this.#answered(answer);
    });
    let over = false;
    const ended = (): void => {
      // An error is followed by the exit, when there may be another thread.
      if (!over) this.#failed();
      over = true;
    };
    thread.on('error', ended);
    thread.on('exit', ended);
    return thread;
  }

  #answered(answer: MaskAnswer): void {
    const constraint = this.#current;
    this.#current = undefined;
    if (answer.kind === 'mask') this.#sent?.add(answer);
    // To one that was asked again meanwhile it is the answer before.
    if (constraint && !this.#waiting.has(constraint)) constraint.answered(answer);
    this.#next();
  }

  /** The thread's state of these replies is lost, so they cannot continue. */
  #failed(): void {
    this.#thread = undefined;
    // Another thread gives the same numbers to other places.
    this.#sent?.clear();
    const constraint = this.#current;
    this.#current = undefined;
    if (constraint) constraint.answered({ id: constraint.id, kind: 'fault', reason: 'the thread for grammars failed' });
    this.#next();
  }
}

/** The masks that the thread has sent, by their places. Bounded: where they take more than {@link MAX_MASKS}, all are dropped. */
class SentMasks {
  readonly #newPlaces: () => KnownPlaces;
  /** By {@link MaskPlace.of}. */
  readonly #all = new Map<number, { readonly places: KnownPlaces; readonly masks: Map<number, MadeMask> }>();
  #bytes = 0;

  constructor(newPlaces: () => KnownPlaces) {
    this.#newPlaces = newPlaces;
  }

  add(made: MadeMask): void {
    const { mask, isNarrow, place } = made;
    if (!place || this.at(place.of, place.at)) return;
    const bytes = maskBytes(32 * mask.length) + 2 * place.leaves.byteLength + mask.byteLength;
    if (this.#bytes + bytes > MAX_MASKS) this.clear();
    this.#bytes += bytes;
    let own = this.#all.get(place.of);
    if (!own) this.#all.set(place.of, (own = { places: this.#newPlaces(), masks: new Map() }));
    own.masks.set(place.at, made);
    own.places.know(place.at, mask, isNarrow, place.leaves);
  }

  /** Runs that still have the places end at them. */
  clear(): void {
    for (const { places, masks } of this.#all.values()) for (const at of masks.keys()) places.forget(at);
    this.#all.clear();
    this.#bytes = 0;
  }

  at(of: number, at: number): MadeMask | undefined {
    return this.#all.get(of)?.masks.get(at);
  }

  /** What is known of where a text stands after a token that {@link MadeMask.mask} has. */
  after({ place }: MadeMask, token: number): MadeMask | undefined {
    if (!place) return undefined;
    let { at } = place;
    for (let i = 0; i < place.leaves.length; i += 2) if (place.leaves[i] === token) at = place.leaves[i + 1] ?? -1;
    return this.at(place.of, at);
  }

  from({ place }: MadeMask): { readonly places: KnownPlaces; readonly at: number } | undefined {
    if (!place) return undefined;
    const own = this.#all.get(place.of);
    return own?.masks.has(place.at) === true ? { places: own.places, at: place.at } : undefined;
  }
}

class QueuedConstraint implements MaskConstraint {
  readonly id: number;
  /** The thread was asked for it. */
  isKnown = false;
  pending: Promise<void> | undefined;
  readonly #gbnf: string;
  readonly #sent: SentMasks | undefined;
  readonly #lane: { readonly ask: () => void; readonly release: () => void };
  /** Tokens that the thread has not read. */
  #read: number[];
  #released = false;
  #resolve: () => void = () => undefined;
  #answer: MaskAnswer | undefined;

  constructor(
    id: number,
    gbnf: string,
    read: readonly number[],
    sent: SentMasks | undefined,
    lane: { ask: () => void; release: () => void },
  ) {
    this.id = id;
    this.#gbnf = gbnf;
    this.#read = [...read];
    this.#sent = sent;
    this.#lane = lane;
  }

  get mask(): TokenBits {
    return this.#made().mask;
  }

  get isNarrow(): boolean {
    return this.#made().isNarrow;
  }

  get from(): { readonly places: KnownPlaces; readonly at: number } | undefined {
    return this.#sent?.from(this.#made());
  }

  accept(token: number): void {
    if (this.#released) return;
    this.#read.push(token);
    const next = this.#answer?.kind === 'mask' ? this.#sent?.after(this.#answer, token) : undefined;
    if (next) this.#answer = next;
    else this.ask();
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#lane.release();
    this.#settle();
  }

  ask(): void {
    this.#answer = undefined;
    this.pending ??= new Promise((resolve) => (this.#resolve = resolve));
    this.#lane.ask();
  }

  request(): MaskRequest {
    const first = !this.isKnown && { gbnf: this.#gbnf };
    this.isKnown = true;
    return { kind: 'next', id: this.id, ...first, read: this.#read.splice(0) };
  }

  answered(answer: MaskAnswer): void {
    this.#answer = answer;
    this.#settle();
  }

  #made(): MadeMask {
    if (this.#answer?.kind === 'mask') return this.#answer;
    throw new EngineFault(this.#answer?.kind === 'fault' ? this.#answer.reason : 'the grammar is not ready');
  }

  #settle(): void {
    this.pending = undefined;
    this.#resolve();
  }
}

function startThread(vocabulary: MaskVocabulary): MaskThread {
  return new Worker(new URL('./mask-worker.js', import.meta.url), {
    workerData: vocabulary,
    // The limit that keeps the engine's own heap small would be too small for this thread's tables.
    execArgv: [],
  });
}
