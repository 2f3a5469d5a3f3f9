/** An open loop on few connections: what is sent, and when, does not hang on what came back. */

export interface Rate {
  readonly perSecond: number;
  readonly seconds: number;
}

/** Calls `send` at the rate, until it has sent them all. It returns false when it cannot send now; then it is asked again. */
export async function byTheClock({ perSecond, seconds }: Rate, send: () => boolean): Promise<void> {
  const total = perSecond * seconds;
  const from = performance.now();
  for (let sent = 0; sent < total;) {
    const due = Math.min(total, Math.floor(((performance.now() - from) * perSecond) / 1000));
    while (sent < due && send()) sent += 1;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

export interface Asked<T> {
  readonly done: readonly T[];
  /** How often no caller was free. */
  readonly late: number;
  /** Answered in fact. */
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
  const from = performance.now();
  let late = 0;
  await byTheClock(rate, () => {
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
