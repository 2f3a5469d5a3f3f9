/**
 * Callers that leave, and the seat queue, on a clock that jumps from event to event. A caller of a stream leaves if it
 * has no first token in time, one of a whole reply if it has no end in time; its place or seat is free at once then, as
 * in the service.
 */
import { Agenda } from '../../bench/admission/agenda.js';
import { seeded } from '../../bench/support/load.js';
import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { Lease, Refused } from '../../sidecar/admission/types.js';

/** What a caller waits for. */
type Kind = 'stream' | 'whole';

export interface Caller {
  readonly atMs: number;
  readonly account: string;
  /** Seat time of its reply, ms. */
  readonly holdMs: number;
  /** From its arrival: when it leaves unless it has what it waits for. */
  readonly patienceMs: number;
}

/** Mean seat times of replies, ms. */
export const MEAN_MS = { short: 1000, long: 4000 } as const;

const SEATS = 8;
const ACCOUNTS = 6;
/** To the first token of a stream, of its seat time. */
const PREFILL = 0.05;
/** Spread of seat times. */
const HOLD_SIGMA = 0.8;

/** Poisson arrivals of six accounts with equal demand, whose callers wait `patienceMs`; the same for the same seed. */
export function callers(load: number, patienceMs: number, meanMs: number, untilMs: number, seed: number): Caller[] {
  const random = seeded(seed);
  const exponential = (): number => -Math.log(1 - random());
  const normal = (): number => Math.sqrt(2 * exponential()) * Math.cos(2 * Math.PI * random());
  const everyMs = meanMs / (load * SEATS);
  const list: Caller[] = [];
  for (let atMs = exponential() * everyMs; atMs < untilMs; atMs += exponential() * everyMs) {
    const account = `account ${Math.floor(random() * ACCOUNTS)}`;
    const holdMs = meanMs * Math.exp(HOLD_SIGMA * normal() - HOLD_SIGMA ** 2 / 2);
    list.push({ atMs, account, holdMs, patienceMs });
  }
  return list;
}

export interface SimulatedCall extends Caller {
  end: 'waiting' | 'good' | 'left' | 'refused' | 'cut';
  /** Seat time, ms, and when it was. */
  seatedAt: number;
  endedAt: number;
  retryAfterMs: number;
  /** That time was reserved, or none could be; undefined: it is the predicted wait. */
  retry?: Refused['retry'];
  readonly again: boolean;
}

export interface Setting {
  readonly kind: Kind;
  readonly untilMs: number;
  readonly maxWaitMs: number;
  readonly learns: boolean;
  /** After how many ms a refused caller returns once. */
  readonly comesBack?: (visit: SimulatedCall) => number | undefined;
}

/** Of the queue's random numbers. */
const SEED = 7;

/** Returns the outcome of each, in the order of arrival. Deterministic. */
export async function simulate(list: readonly Caller[], setting: Setting): Promise<SimulatedCall[]> {
  const agenda = new Agenda();
  const random = seeded(SEED);
  const queue = new SeatQueue({
    clock: agenda,
    random,
    seats: SEATS,
    config: { maxWaitMs: setting.maxWaitMs, waitingPerSeat: 8, waitingBytes: Infinity },
    learns: setting.learns,
  });
  const visits: SimulatedCall[] = [];
  const arrive = (caller: Caller, bodyDigest: string, again: boolean): void => {
    const atMs = agenda.now();
    const visit: SimulatedCall = {
      ...caller,
      atMs,
      end: 'waiting',
      seatedAt: NaN,
      endedAt: NaN,
      retryAfterMs: 0,
      again,
    };
    visits.push(visit);
    const entry = {
      account: caller.account,
      weight: 4,
      bytes: 2000,
      seatsWanted: 1,
      awaits: setting.kind === 'stream' ? 'first-token' : 'end',
      bodyDigest,
    } as const;
    const refused = ({ retryAfterMs, retry }: Refused): void => {
      visit.end = 'refused';
      visit.retryAfterMs = retryAfterMs;
      visit.retry = retry;
      visit.endedAt = agenda.now();
      const afterMs = again ? undefined : setting.comesBack?.(visit);
      if (afterMs !== undefined) agenda.after(afterMs, () => arrive(caller, bodyDigest, true));
    };
    const ticket = queue.enter(entry);
    if ('kind' in ticket) {
      refused(ticket);
      return;
    }
    let lease: Lease | undefined;
    const end = (how: 'good' | 'left'): void => {
      visit.end = how;
      visit.endedAt = agenda.now();
      if (how === 'left') ticket.cancel('disconnected');
      lease?.release(how === 'good' ? 'done' : 'cancelled');
    };
    const leaves = Number.isFinite(caller.patienceMs) ? agenda.after(caller.patienceMs, () => end('left')) : undefined;
    void ticket.outcome.then((outcome) => {
      if (outcome.kind === 'cancelled') return;
      if (outcome.kind === 'refused') {
        leaves?.();
        refused(outcome);
        return;
      }
      lease = outcome.lease;
      visit.seatedAt = agenda.now();
      if (setting.kind === 'stream') {
        agenda.after(caller.holdMs * PREFILL, () => {
          if (visit.end === 'left') return;
          leaves?.();
          lease?.begun();
        });
      }
      agenda.after(caller.holdMs, () => {
        if (visit.end === 'left') return;
        leaves?.();
        end('good');
      });
    });
    ticket.ready({ promptTokens: 100 });
  };
  const schedule = (index: number): void => {
    const caller = list[index];
    if (caller === undefined) return;
    agenda.after(caller.atMs - agenda.now(), () => {
      schedule(index + 1);
      arrive(caller, `${index}`, false);
    });
  };
  schedule(0);
  while (agenda.step(setting.untilMs)) for (let turn = 0; turn < TURNS; turn += 1) await Promise.resolve();
  return visits;
}

/** Microtasks between an event and the last outcome that it settles: the queue's, the promise's, the caller's. */
const TURNS = 4;

/** Of the arrivals from `fromMs` on. */
export interface Figures {
  /** Seat time of replies whose caller had what it waited for, over all seat time. */
  readonly good: number;
  /** Share of the requests that was refused. */
  readonly refused: number;
}

export function figuresOf(visits: readonly SimulatedCall[], fromMs: number, toMs: number): Figures {
  const within = visits.filter(({ atMs }) => atMs >= fromMs && atMs < toMs);
  let good = 0;
  for (const { seatedAt, endedAt, end } of visits) {
    if (Number.isNaN(seatedAt) || end === 'left') continue;
    const ended = Number.isNaN(endedAt) ? toMs : endedAt;
    good += Math.max(0, Math.min(ended, toMs) - Math.max(seatedAt, fromMs));
  }
  return {
    good: good / (SEATS * (toMs - fromMs)),
    refused: within.filter(({ end }) => end === 'refused').length / within.length,
  };
}
