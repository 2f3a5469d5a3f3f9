/**
 * Arrivals at a policy, on a clock that jumps from event to event. A client waits `patienceMs` for its seat and then
 * leaves; it never retries. A seated request holds its seat to the end, even if its client has left: only a policy that
 * drops it in time avoids that.
 */
import { seeded } from '../support/load.js';
import { Agenda } from './agenda.js';
import type { Door, Policy, Seated } from './policies.js';
import type { Arrival } from './traffic.js';

/** Waiting until another outcome. Refused: at once. Dropped: it had a place and lost it, sooner or later. */
export type Fate = 'waiting' | 'refused' | 'dropped' | 'seated';

/** The outcome of one request; times in ms on the simulation’s clock. */
export interface SimulatedRequest extends Arrival {
  fate: Fate;
  /** When that was settled. */
  settledAt: number;
  /** Of a refusal. */
  retryAfterMs: number;
  /** The wait that the policy predicted, if any: known of seated requests. */
  predictedMs: number | undefined;
  /** The request that this one retries, without which it would not exist. */
  readonly retries: SimulatedRequest | undefined;
}

export interface Simulation {
  readonly seats: number;
  readonly patienceMs: number;
  readonly untilMs: number;
  /** After how many ms the client of this refused request returns once; undefined: never, which is the default. */
  readonly comesBack?: (visit: SimulatedRequest) => number | undefined;
}

/** The same for all: the length of a reply is not known in advance. */
const BODY_BYTES = 2000;
const WORK = { promptTokens: 100, maxTokens: 1000 };
/** For the policy’s own use: the spread of Retry-After. */
const POLICY_SEED = 7;

/** Returns the requests in the order of their arrival. Deterministic. */
export async function simulate(
  policy: Policy,
  list: readonly Arrival[],
  simulation: Simulation,
): Promise<SimulatedRequest[]> {
  const agenda = new Agenda();
  const { seats, patienceMs, untilMs } = simulation;
  const door = policy.open({ clock: agenda, random: seeded(POLICY_SEED), seats, patienceMs });
  const run = new Run(agenda, door, simulation);
  run.schedule(list, 0);
  while (agenda.step(untilMs)) await outcomesTold();
  return run.visits;
}

/** The request was seated before its client left. */
export function inTime(visit: SimulatedRequest, patienceMs: number): boolean {
  // Sums of fractions of milliseconds: an event at the very end of the patience is in time.
  return visit.fate === 'seated' && visit.settledAt - visit.atMs <= patienceMs + 1e-6;
}

class Run {
  readonly visits: SimulatedRequest[] = [];
  readonly #agenda: Agenda;
  readonly #door: Door;
  readonly #simulation: Simulation;

  constructor(agenda: Agenda, door: Door, simulation: Simulation) {
    this.#agenda = agenda;
    this.#door = door;
    this.#simulation = simulation;
  }

  /** One arrival at a time is on the agenda, each with the next in tow. */
  schedule(list: readonly Arrival[], index: number): void {
    const arrival = list[index];
    if (arrival === undefined) return;
    this.#agenda.after(arrival.atMs - this.#agenda.now(), () => {
      this.schedule(list, index + 1);
      this.#arrive(arrival, undefined);
    });
  }

  #arrive({ account, holdMs }: Arrival, retries: SimulatedRequest | undefined): void {
    const atMs = this.#agenda.now();
    const visit: SimulatedRequest = {
      atMs,
      account,
      holdMs,
      fate: 'waiting',
      settledAt: Infinity,
      retryAfterMs: 0,
      predictedMs: undefined,
      retries,
    };
    this.visits.push(visit);
    const pass = this.#door.enter({ account, weight: 4, bytes: BODY_BYTES, seatsWanted: 1 });
    if ('kind' in pass) {
      this.#turnAway(visit, 'refused', pass.retryAfterMs);
      return;
    }
    void pass.outcome.then((outcome) => {
      if (outcome.kind === 'seated') this.#sit(visit, outcome);
      else this.#turnAway(visit, 'dropped', outcome.kind === 'refused' ? outcome.retryAfterMs : 0);
    });
    pass.ready(WORK);
  }

  #sit(visit: SimulatedRequest, { lease }: Seated): void {
    visit.fate = 'seated';
    visit.predictedMs = lease.predictedMs;
    visit.settledAt = this.#agenda.now();
    this.#agenda.after(visit.holdMs, () => lease.release('done'));
  }

  #turnAway(visit: SimulatedRequest, fate: 'refused' | 'dropped', retryAfterMs: number): void {
    visit.fate = fate;
    visit.settledAt = this.#agenda.now();
    visit.retryAfterMs = retryAfterMs;
    const afterMs = visit.retries === undefined ? this.#simulation.comesBack?.(visit) : undefined;
    if (afterMs !== undefined) this.#agenda.after(afterMs, () => this.#arrive(visit, visit));
  }
}

/** A queue delivers its outcomes some microtasks after the event: all of them run before an immediate does. */
function outcomesTold(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
