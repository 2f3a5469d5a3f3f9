/** An open loop on few connections: what is sent, and when, does not depend on answers. */
import { Worker } from 'node:worker_threads';
import type { Ticks } from './clock-thread.js';

export interface Rate extends Ticks {
  readonly seconds: number;
}

/** Calls `send` at the rate, until it has sent all. It returns false if it cannot send now; then it is called again. */
export async function byTheClock({ seconds, ...ticks }: Rate, send: () => boolean): Promise<void> {
  const total = ticks.perSecond * seconds;
  const clock = new Worker(new URL('clock-thread.js', import.meta.url), { workerData: ticks });
  let due = 0;
  let sent = 0;
  await new Promise<void>((resolve, reject) => {
    clock.once('error', reject).on('message', () => {
      due = Math.min(total, due + 1);
      while (sent < due && send()) sent += 1;
      if (sent === total) resolve();
    });
  });
  await clock.terminate();
}

export interface OpenLoopResult<T> {
  readonly done: readonly T[];
  /** How often no caller was free. */
  readonly late: number;
  /** The actual rate of answers, from the first request on. */
  readonly perSecond: number;
}

/** By the clock, on a free caller, which `next` takes from all of these: by default the one that was used last. Rejects as `ask` does. */
export async function onWhoIsFree<C, T>(
  callers: readonly C[],
  rate: Rate,
  ask: (caller: C) => Promise<T>,
  next = (free: C[]): C | undefined => free.pop(),
): Promise<OpenLoopResult<T>> {
  const free = [...callers];
  const done: T[] = [];
  const open = new Set<Promise<void>>();
  let from = 0;
  let late = 0;
  await byTheClock(rate, () => {
    from ||= performance.now();
    const caller = next(free);
    if (caller === undefined) {
      late += 1;
      return false;
    }
    const asked: Promise<void> = ask(caller).then((answer) => {
      done.push(answer);
      free.push(caller);
      open.delete(asked);
    });
    open.add(asked);
    return true;
  });
  await Promise.all(open);
  return { done, late, perSecond: done.length / ((performance.now() - from) / 1000) };
}
