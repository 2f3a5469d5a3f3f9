/** Turns of the event loop without a new job after which a burst is over, some 0.1 ms; and turns at most. */
const STILL_TURNS = 20;
const MOST_TURNS = 400;

/**
 * Waits until no more jobs arrive: those that arrive together start together, since otherwise the others would join the
 * first one a few at each step. `live`: the number of jobs so far.
 */
export async function burst(live: () => number): Promise<void> {
  let before = 0;
  for (let turns = 0, still = 0; turns < MOST_TURNS && still < STILL_TURNS; turns++) {
    await new Promise(setImmediate);
    const now = live();
    still = now > before ? 0 : still + 1;
    before = now;
  }
}
