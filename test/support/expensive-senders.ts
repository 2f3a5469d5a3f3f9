/** Senders of one account that keep the prompt hosts busy, and the times of another one's requests. */
import type { Sidecar } from './sidecar.js';

/** From its creation until `stop`, each sender sends one of the bodies as soon as its last one is answered. */
export class ExpensiveSenders {
  readonly #statuses = new Set<number>();
  readonly #done: Promise<unknown>;
  #over = false;

  constructor(sidecar: Sidecar, key: string, senders: number, bodies: readonly string[]) {
    this.#done = Promise.all(Array.from({ length: senders }, () => this.#send(sidecar, key, bodies)));
  }

  /** Resolves with the statuses of all answers, once the last one is there. */
  async stop(): Promise<ReadonlySet<number>> {
    this.#over = true;
    await this.#done;
    return this.#statuses;
  }

  async #send(sidecar: Sidecar, key: string, bodies: readonly string[]): Promise<void> {
    for (let i = 0; !this.#over; i++) {
      const response = await sidecar.post('/chat/completions', bodies[i % bodies.length], { key });
      await response.arrayBuffer();
      this.#statuses.add(response.status);
    }
  }
}

/** Requests one after another. Returns the time of each until its head, ms. Throws at one that is not answered 200. */
export async function timesOf(
  sidecar: Sidecar,
  key: string,
  count: number,
  body: string,
  path = '/chat/completions',
): Promise<number[]> {
  const took: number[] = [];
  for (let i = 0; i < count; i++) {
    const from = performance.now();
    const response = await sidecar.post(path, body, { key });
    took.push(performance.now() - from);
    await response.arrayBuffer();
    if (response.status !== 200) throw new Error(`the other account is answered ${response.status}`);
  }
  return took;
}
