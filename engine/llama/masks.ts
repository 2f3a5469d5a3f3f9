import { Worker } from 'node:worker_threads';
import type { MadeMask } from '../grammar/mask.js';
import { EngineFault } from '../scheduler/faults.js';
import type { FollowedMasks } from './followed-masks.js';

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

export type MaskAnswer =
  | { readonly kind: 'mask'; readonly made: MadeMask }
  /** `reason`: without any of a caller's text. */
  | { readonly kind: 'fault'; readonly reason: string };

/** The functions of the thread that are used here. */
export type MaskThread = Pick<Worker, 'postMessage' | 'on' | 'ref' | 'unref'>;

export interface MaskConstraint {
  /** Settles when the next token can be sampled; never rejects. Undefined if it can, and {@link made} has the allowed tokens. */
  readonly pending: Promise<void> | undefined;
  /**
   * Throws an {@link EngineFault} if the grammar cannot be used, or while it is pending. A grammar that is looked at within the step knows
   * the same narrow places, so that a reply that changes over to masks draws the same tokens.
   */
  readonly made: MadeMask;
  /** This token, which may come, was sampled. */
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
  readonly #followed: FollowedMasks;

  /** `vocabulary`: each thread gets a copy. */
  constructor(vocabulary: MaskVocabulary, followed: FollowedMasks, start = startThread) {
    this.#vocabulary = vocabulary;
    this.#start = start;
    this.#followed = followed;
  }

  /** Constrains a reply from now on by `gbnf`, which has already matched `tokens`. */
  constrain(gbnf: string, tokens: readonly number[]): MaskConstraint {
    const constraint = new QueuedConstraint(++this.#lastId, gbnf, tokens, {
      after: (made, token) => this.#followed.after(made, token),
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
    // To one that was asked again meanwhile a mask is the answer before.
    if (constraint && (answer.kind === 'fault' || !this.#waiting.has(constraint))) {
      this.#waiting.delete(constraint);
      constraint.answered(answer);
    }
    this.#next();
  }

  /** The thread's state of these replies is lost, so they cannot continue. */
  #failed(): void {
    this.#thread = undefined;
    this.#answered({ kind: 'fault', reason: 'the thread for grammars failed' });
  }
}

/** Tokens that the thread has not read, at most: until then it keeps the tables of the place where it left the reply. */
const MOST_UNREAD = 256;

type Lane = Pick<FollowedMasks, 'after'> & { readonly ask: () => void; readonly release: () => void };

class QueuedConstraint implements MaskConstraint {
  readonly id: number;
  /** The thread was asked for it. */
  isKnown = false;
  pending: Promise<void> | undefined;
  readonly #gbnf: string;
  readonly #lane: Lane;
  /** Tokens that the thread has not read. */
  #read: number[];
  #released = false;
  #resolve: () => void = () => undefined;
  #answer: MaskAnswer | undefined;

  constructor(id: number, gbnf: string, read: readonly number[], lane: Lane) {
    this.id = id;
    this.#gbnf = gbnf;
    this.#read = [...read];
    this.#lane = lane;
  }

  get made(): MadeMask {
    if (this.#answer?.kind === 'mask') return this.#answer.made;
    throw new EngineFault(this.#answer?.kind === 'fault' ? this.#answer.reason : 'the grammar is not ready');
  }

  accept(token: number): void {
    // What the thread cannot go on with stays a fault.
    if (this.#released || this.#answer?.kind === 'fault') return;
    this.#read.push(token);
    const known = this.#answer && this.#lane.after(this.#answer.made, token);
    const made = this.#read.length < MOST_UNREAD ? known : undefined;
    if (made) this.#answer = { kind: 'mask', made };
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
