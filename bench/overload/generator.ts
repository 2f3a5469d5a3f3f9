/**
 * An open-loop load in a process, so that the bench’s other work never delays a request: arrivals are a Poisson process
 * that does not wait for answers, and latencies count from when a request was due.
 */
import { Agent } from 'node:http';
import { seeded } from '../support/load.js';
import { attempt, type Attempt, type Target } from './attempt.js';

/** A period with one rate. */
export interface Phase {
  readonly perSecond: number;
  readonly seconds: number;
}

export interface Load {
  readonly target: Target;
  readonly phases: readonly Phase[];
  /** Accounts and their shares of the requests, which sum to 1. */
  readonly accounts: Readonly<Record<string, number>>;
  /** How long a caller waits for the whole answer, ms. */
  readonly patienceMs: number;
  readonly seed: number;
  readonly model: string;
  readonly tokens: number;
}

/** Sends all requests; resolves when the last one ended. */
async function run(load: Load): Promise<Attempt[]> {
  const { phases, accounts, seed, model, tokens, patienceMs, target } = load;
  const random = seeded(seed);
  // A connection per request: one of the peers closes idle ones just when the next request is on its way.
  const agent = new Agent({ keepAlive: false });
  const startedAt = performance.now();
  const open: Promise<Attempt>[] = [];
  let scheduledMs = 0;
  let phaseEndMs = 0;
  for (const { perSecond, seconds } of phases) {
    phaseEndMs += seconds * 1000;
    for (;;) {
      const next = scheduledMs - (Math.log(1 - random()) / perSecond) * 1000;
      if (next > phaseEndMs) break;
      scheduledMs = next;
      const waitMs = startedAt + scheduledMs - performance.now();
      if (waitMs > 1) await new Promise((later) => setTimeout(later, waitMs));
      const content = `Tell me about the sea, part ${open.length}`;
      const body = { model, messages: [{ role: 'user', content }], max_tokens: tokens, temperature: 0 };
      const account = pick(accounts, random());
      open.push(attempt(target, { agent, account, scheduledMs, startedAt, patienceMs, body }));
    }
    scheduledMs = phaseEndMs;
  }
  return Promise.all(open);
}

function pick(accounts: Load['accounts'], at: number): string {
  let below = 0;
  const names = Object.entries(accounts);
  for (const [name, share] of names) {
    below += share;
    if (at < below) return name;
  }
  return names.at(-1)?.[0] ?? '';
}

process.on('message', (load: Load) => {
  void run(load).then((attempts) => process.send?.(attempts));
});
process.once('disconnect', () => process.exit(0));
