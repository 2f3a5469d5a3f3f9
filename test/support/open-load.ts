/** Requests at random times that do not wait for answers, until the load is ended. */
import { seeded } from '../../bench/support/load.js';

/** The results of a load: what each request’s `send` returned, in the order of sending. */
export class OpenLoad<Answer> {
  readonly #perSecond: number;
  readonly #send: (i: number) => Promise<Answer>;
  readonly #random = seeded(1);
  readonly #sent: Promise<Answer>[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** Begins at once: a Poisson process of `perSecond` requests, the same in each run. */
  constructor(perSecond: number, send: (i: number) => Promise<Answer>) {
    this.#perSecond = perSecond;
    this.#send = send;
    this.#next(performance.now());
  }

  /** Sends no more, and resolves when all are answered. May be called again. */
  async end(): Promise<readonly Answer[]> {
    clearTimeout(this.#timer);
    return await Promise.all(this.#sent);
  }

  /** `due`: of the one before. A sender that is late catches up, so that no arrival is lost. */
  #next(due: number): void {
    const at = due - (Math.log(1 - this.#random()) / this.#perSecond) * 1000;
    this.#timer = setTimeout(
      () => {
        this.#sent.push(this.#send(this.#sent.length));
        this.#next(at);
      },
      Math.max(0, at - performance.now()),
    );
  }
}
