import type { Part, PartResult } from './decoder.js';
import type { Reuse } from './sequence-tokens.js';
import type { Output } from '../protocol/messages.js';
import type { Feed, PromptPlan } from './prompt-plan.js';

/** One reply or one question on one sequence: asked for its part of the next step, then handed the result. */
export interface Branch {
  readonly sequence: number;
  readonly feed: Feed;
  /** All of it is out. */
  readonly over: boolean;
  /**
   * Until the next token of its reply can be chosen: what its grammar allows is being worked out beside the steps. Its prompt goes
   * on meanwhile, but for the end. Never rejects. Undefined: now.
   */
  readonly pending?: Promise<void> | undefined;
  /** Next tokens that may be made in a run, before anyone looked at the first of them; 1 at least. */
  readonly ahead: number;
  /** The next part: `count` prompt tokens, at most all that are left; 0 once there are none. Called once a step. */
  part(count: number): Part;
  /** Takes the part's result and adds what it produced to `out`. Faults are the loop's business. */
  accept(result: Exclude<PartResult, { kind: 'fault' }>, out: Output[]): void;
  /** Lets go of samplers. Idempotent. */
  dispose(): void;
}

/** What a job consists of: items (replies, questions) that start from the same tokens. */
export interface Work {
  readonly items: number;
  /** No other sequence may share its decodes (a decision's result must not depend on the neighbours). */
  readonly alone: boolean;
  /** Its items sit steps out ({@link Branch.pending}). Absent: none does. */
  readonly intermittent?: boolean;
  /** How far an item may build on what another of the same job left. */
  readonly reuse: Exclude<Reuse, 'none'>;
  plan(item: number): PromptPlan;
  /** An item on a sequence that holds the first `held` tokens of its plan. */
  branch(item: number, sequence: number, held: number): Branch;
  /** Whether a branch has got so far that another item can start from its state. */
  shareable(branch: Branch): boolean;
}

/** One job: which of its items are under way, where, and how many sequences it may have. Touches no decoder. */
export class Task {
  readonly id: number;
  readonly work: Work;
  readonly #branches: Branch[] = [];
  #seats: number;
  /** Sequences that it may use at once; fewer, once others wait for its seats. */
  #limit: number;
  /** The first item that no branch has taken up, and its plan. */
  #item = 0;
  #next: PromptPlan | undefined;
  #ended = 0;

  constructor(id: number, work: Work, seats: number, limit = seats) {
    this.id = id;
    this.work = work;
    this.#seats = Math.min(seats, work.items);
    this.#limit = Math.min(limit, work.items);
    this.#next = work.plan(0);
  }

  /** Seats that are its own. */
  get seats(): number {
    return this.#seats;
  }

  /** Items under way, at most one a sequence. */
  get branches(): readonly Branch[] {
    return this.#branches;
  }

  /** The prompt of the next item; undefined: all are taken up. */
  get next(): PromptPlan | undefined {
    return this.#next;
  }

  /** All is out. */
  get done(): boolean {
    return this.#ended === this.work.items;
  }

  /** Whether the next item may start where one has ended. */
  get follows(): boolean {
    return this.#branches.length <= this.#limit;
  }

  /** Whether the next item could start beside the others. */
  get spreads(): boolean {
    const { work } = this;
    return (
      this.#next !== undefined &&
      this.#branches.length < this.#limit &&
      this.#branches.some((branch) => work.shareable(branch))
    );
  }

  /** Whether a decode has left something to do: an item is over, the next one can start, or a seat can be given up. */
  get moves(): boolean {
    return this.#branches.some(({ over }) => over) || this.spreads || this.#seats > this.#needed;
  }

  /** Goes on with one sequence less, but for its last. */
  reduceSeats(): void {
    this.#limit = Math.max(1, this.#limit - 1);
  }

  /** Starts the next item. */
  begin(sequence: number, held: number): void {
    this.#branches.push(this.work.branch(this.#item, sequence, held));
    this.#item += 1;
    this.#next = this.#item < this.work.items ? this.work.plan(this.#item) : undefined;
  }

  /** A branch is over. Its sequence is the loop's again. */
  end(branch: Branch): void {
    branch.dispose();
    this.#branches.splice(this.#branches.indexOf(branch), 1);
    this.#ended += 1;
  }

  /** Gives up the seats that it will not need again and returns how many. Not when it is done: that gives up all. */
  spare(): number {
    const spare = Math.max(0, this.#seats - this.#needed);
    this.#seats -= spare;
    return spare;
  }

  /** Seats that it has use for. */
  get #needed(): number {
    return Math.min(this.work.items - this.#ended, Math.max(this.#limit, this.#branches.length));
  }

  dispose(): void {
    for (const branch of this.#branches) branch.dispose();
  }
}

/** What jobs need to know of the model. */
export interface ModelTokens {
  isEnd(token: number): boolean;
  /** The bytes a token stands for; none for control tokens. */
  bytes(token: number): Uint8Array;
  /** A control token's name, such as `<|channel|>`; undefined: the token is none. */
  control(token: number): string | undefined;
}
