/** Load on a server that streams chat completions: closed (so many callers, each in turn) and open (arrivals by the clock). */
import { median, quantile } from './stats.js';
import { stream, type Streamed, type Target } from './streaming.js';

export interface Outcome {
  readonly replies: readonly Streamed[];
  /** Until the last reply ended; of an open loop, in which requests were sent. */
  readonly seconds: number;
  /** Of an open loop the replies that ended within its seconds; absent: all did. */
  readonly ended?: readonly Streamed[];
}

/** `callers` at once, each sending its next request when its last one ended, until `replies` have been sent in all. */
export async function closedLoop(
  target: Target,
  callers: number,
  replies: number,
  body: (i: number) => object,
): Promise<Outcome> {
  const done: Streamed[] = [];
  let sent = 0;
  const caller = async (): Promise<void> => {
    while (sent < replies) done.push(await stream(target, body(sent++)));
  };
  const from = performance.now();
  await Promise.all(Array.from({ length: callers }, caller));
  return { replies: done, seconds: (performance.now() - from) / 1000 };
}

/**
 * Poisson arrivals, `perSecond` on average for `seconds`, whatever the server does; waits for the last reply. Times to a first
 * token count from when a request was due, also if this process was late.
 */
export async function openLoop(
  target: Target,
  perSecond: number,
  seconds: number,
  random: () => number,
  body: (i: number) => object,
): Promise<Outcome> {
  const from = performance.now();
  const open: Promise<Streamed>[] = [];
  for (let atMs = 0, i = 0; ; i++) {
    atMs += (-Math.log(1 - random()) / perSecond) * 1000;
    if (atMs > seconds * 1000) break;
    const waitMs = from + atMs - performance.now();
    if (waitMs > 0) await new Promise((later) => setTimeout(later, waitMs));
    const due = from + atMs;
    const reply = stream(target, body(i));
    open.push(reply.then((streamed) => ({ ...streamed, ttftMs: (streamed.timesMs[0] ?? NaN) - due })));
  }
  const replies = await Promise.all(open);
  return { replies, seconds, ended: replies.filter(({ endMs }) => endMs <= from + seconds * 1000) };
}

/** Tokens generated a second, in an open loop of the replies that ended within its seconds. */
export function tokensPerSecond({ replies, seconds, ended = replies }: Outcome): number {
  return ended.reduce((sum, { completionTokens }) => sum + completionTokens, 0) / seconds;
}

/** TTFT and gaps between pieces over all replies of some outcomes, ms. */
export function latencies(outcomes: readonly Outcome[]): {
  readonly ttft: number;
  readonly ttft99: number;
  readonly gap: number;
  readonly gap99: number;
} {
  const replies = outcomes.flatMap((outcome) => outcome.replies);
  const ttfts = replies.map(({ ttftMs }) => ttftMs);
  const gaps = replies.flatMap(({ gapsMs }) => gapsMs);
  return { ttft: median(ttfts), ttft99: quantile(ttfts, 0.99), gap: median(gaps), gap99: quantile(gaps, 0.99) };
}

/** Numbers from 0 to 1 that are the same in every run (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
