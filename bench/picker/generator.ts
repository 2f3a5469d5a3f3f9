/**
 * Two open-loop loads in a process: short and long requests to the picker, and long ones straight to the first sidecar,
 * as of a caller that is bound to it. Arrivals are Poisson processes that do not wait for answers; the same seed gives
 * the same requests at the same times.
 */
import { Agent } from 'node:http';
import { STUB_JOB } from '../../test/support/stub-script.js';
import { attempt, type Attempt } from '../overload/attempt.js';
import { seeded } from '../support/load.js';

/** Tokens of a reply, and the share of such requests. */
export interface Kind {
  readonly name: string;
  readonly share: number;
  readonly tokens: number;
}

export interface Stream {
  readonly port: number;
  readonly perSecond: number;
  readonly kinds: readonly Kind[];
}

export interface Load {
  readonly streams: readonly Stream[];
  readonly seconds: number;
  readonly model: string;
  readonly seed: number;
}

/** Longer than any reply takes: no caller gives up, so that all policies serve the same requests. */
const PATIENCE_MS = 120_000;

/** The attempts of each stream. */
async function run({ streams, ...load }: Load): Promise<Attempt[][]> {
  const startedAt = performance.now();
  return Promise.all(streams.map((stream, i) => send(stream, load, startedAt, seeded(load.seed * 31 + i))));
}

async function send(
  { port, perSecond, kinds }: Stream,
  { seconds, model }: Omit<Load, 'streams'>,
  startedAt: number,
  random: () => number,
): Promise<Attempt[]> {
  const agent = new Agent({ keepAlive: false });
  const open: Promise<Attempt>[] = [];
  for (let scheduledMs = 0; ;) {
    scheduledMs -= (Math.log(1 - random()) / perSecond) * 1000;
    if (scheduledMs > seconds * 1000) break;
    const { name, tokens } = kindAt(kinds, random());
    const waitMs = startedAt + scheduledMs - performance.now();
    if (waitMs > 1) await new Promise((later) => setTimeout(later, waitMs));
    const messages = [{ role: 'user', content: `Tell me about the sea, part ${open.length}` }];
    const body = { model, messages, max_tokens: tokens, seed: STUB_JOB.paced };
    const target = { port, keys: { [name]: 'good' } };
    open.push(attempt(target, { agent, account: name, scheduledMs, startedAt, patienceMs: PATIENCE_MS, body }));
  }
  return Promise.all(open);
}

function kindAt(kinds: readonly Kind[], at: number): Kind {
  let below = 0;
  for (const kind of kinds) {
    below += kind.share;
    if (at < below) return kind;
  }
  const last = kinds.at(-1);
  if (last === undefined) throw new Error('a stream has kinds');
  return last;
}

process.on('message', (load: Load) => {
  void run(load).then((attempts) => process.send?.(attempts));
});
process.once('disconnect', () => process.exit(0));
