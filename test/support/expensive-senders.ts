/** Senders of one account that keep the prompt hosts busy, and the times of another one's requests. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from './keys.js';
import { chatOnly, DECIDE, Sidecar } from './sidecar.js';

/** A decision that the embedded model answers. */
export const REFUND = JSON.stringify({
  model: DECIDE,
  input: 'Please send the payment back.',
  questions: [{ id: 'refund', type: 'yes_no', question: 'Does the customer ask for a refund?' }],
});

/** A sidecar without limits of requests a minute, with the keys of two accounts, `hostile` and `visitor`. `stub`: its engines are. */
export async function startForTwoAccounts(
  owner: Parameters<typeof Sidecar.start>[0],
  more: object = {},
  stub = false,
): Promise<{ readonly sidecar: Sidecar; readonly hostile: string; readonly visitor: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'ra-two-accounts-'));
  owner.teardown(() => rm(folder, { recursive: true, force: true }));
  const hostile = makeKey({ id: 'hostile', account: 'hostile' });
  const visitor = makeKey({ id: 'visitor', account: 'visitor' });
  const file = join(folder, 'keys.json');
  await writeFile(file, JSON.stringify({ version: 1, keys: [hostile.stored, visitor.stored] }));
  const { models } = await chatOnly(4);
  const decide = { ...models[0], id: DECIDE, kind: 'decision', seats: 1 };
  const limits = { chat: { perMinute: 0 }, decisions: { perMinute: 0 } };
  const sidecar = await Sidecar.start(owner, {
    stub,
    config: { models: [...models, decide], keys: { file }, limits, ...more },
  });
  return { sidecar, hostile: hostile.key, visitor: visitor.key };
}

/** From its creation until `stop`, each sender sends one of the bodies as soon as its last one is answered. */
export class ExpensiveSenders {
  readonly #statuses = new Set<number>();
  readonly #done: Promise<unknown>;
  #over = false;
  #answers = 0;

  constructor(sidecar: Sidecar, key: string, senders: number, bodies: readonly string[]) {
    this.#done = Promise.all(Array.from({ length: senders }, () => this.#send(sidecar, key, bodies)));
    // `stop` rejects if a sender has failed; until it is called nothing awaits this.
    this.#done.catch(() => undefined);
  }

  /** Requests answered so far. */
  get answers(): number {
    return this.#answers;
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
      this.#answers += 1;
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
