import type { EngineChild } from './child.js';
import type { ChildEnd } from '../lib/child-process.js';
import type { EngineFacts } from './engine.js';

/**
 * How the load of a successor ended. `lacksMemory`: memory may have been missing. `leaveGate`: lets the next engine load;
 * called once the seats of this one are counted.
 */
export type Succession =
  | { readonly kind: 'ready'; readonly child: EngineChild; readonly facts: EngineFacts; readonly leaveGate: () => void }
  | { readonly kind: 'ended'; readonly why: string; readonly lacksMemory: boolean };

/** One that is ready. */
export type ReadySuccessor = Extract<Succession, { kind: 'ready' }>;

/** What the process reports before it is ready, or when it fails to become so. */
export interface SuccessorEvents {
  ready(facts: EngineFacts): void;
  ended(end: ChildEnd): void;
}

/** A process that is loaded to take a replica's jobs after the one that takes them now. */
export class Successor {
  /** Settles once. Never rejects. */
  readonly outcome: Promise<Succession>;
  #settle!: (outcome: Succession) => void;
  #child: EngineChild | undefined;
  #leaveGate: () => void = () => undefined;

  /** Forks once `enter` allows it. */
  constructor(enter: (begin: () => void) => () => void, fork: (events: SuccessorEvents) => EngineChild) {
    this.outcome = new Promise((resolve) => (this.#settle = resolve));
    const begin = (): void => {
      const child = fork({
        ready: (facts) => this.#settle({ kind: 'ready', child, facts, leaveGate: this.#leaveGate }),
        ended: (end) => this.#ended(child, end),
      });
      this.#child = child;
    };
    this.#leaveGate = enter(begin);
  }

  /** Ends its process. Settles when it has ended. */
  async cancel(why: string): Promise<void> {
    this.#leaveGate();
    this.#settle({ kind: 'ended', why, lacksMemory: false });
    await this.#child?.close(0);
  }

  #ended(child: EngineChild, { reason, detail, mayMend }: ChildEnd): void {
    // Only when its memory is free again.
    void child.exited.then(() => {
      this.#leaveGate();
      // The kernel kills processes when memory runs out.
      const lacksMemory = mayMend === true || reason === 'killed';
      this.#settle({ kind: 'ended', why: detail ?? reason, lacksMemory });
    });
  }
}
