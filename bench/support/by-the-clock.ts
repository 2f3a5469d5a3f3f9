/** An open loop on few connections: what is sent, and when, does not hang on what came back. */
import { Worker } from 'node:worker_threads';
import type { Ticks } from './clock-thread.js';

export interface Rate extends Ticks {
  readonly seconds: number;
}

/** Calls `send` at the rate, until it has sent them all. It returns false when it cannot send now; then it is asked again. */
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

export interface Asked<T> {
  readonly done: readonly T[];
  /** How often no caller was free. */
  readonly late: number;
  /** Answered in fact, from the first one's sending on. */
  readonly perSecond: number;
}

/** By the clock, on whichever of the callers is free. Rejects as `ask` does. */
export async function onWhoIsFree<C, T>(
  callers: readonly C[],
  rate: Rate,
  ask: (caller: C) => Promise<T>,
): Promise<Asked<T>> {
  const free = [...callers];
  const done: T[] = [];
  const open = new Set<Promise<void>>();
  let from = 0;
  let late = 0;
  await byTheClock(rate, () => {
    from ||= performance.now();
    const caller = free.pop();
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
