/**
 * Callers that leave, and the seat queue, on a clock that jumps from event to event. A caller of a stream leaves if it
 * has no first token in time, one of a whole reply if it has no end in time; its place or seat is free at once then, as
 * in the service.
 */
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { Lease, Refused } from '../../../sidecar/admission/types.js';
import { seeded } from '../../support/load.js';
import { Agenda } from '../agenda.js';
import { PREFILL, SEATS, type Caller, type Kind } from './callers.js';

export interface SimulatedCall extends Caller {
  end: 'waiting' | 'good' | 'left' | 'refused' | 'cut';
  reason?: string;
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
  readonly seed?: number;
  /** After how many ms a refused caller returns once. */
  readonly comesBack?: (visit: SimulatedCall, random: () => number) => number | undefined;
  /** Called periodically with the queue. */
  readonly watch?: (queue: SeatQueue, now: number) => void;
  readonly watchMs?: number;
}

/** Returns the outcome of each, in the order of arrival. Deterministic. */
export async function simulate(list: readonly Caller[], setting: Setting): Promise<SimulatedCall[]> {
  const agenda = new Agenda();
  const random = seeded(setting.seed ?? 7);
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
    const refused = ({ retryAfterMs, reason, retry }: Refused): void => {
      visit.end = 'refused';
      visit.reason = reason;
      visit.retryAfterMs = retryAfterMs;
      visit.retry = retry;
      visit.endedAt = agenda.now();
      const afterMs = again ? undefined : setting.comesBack?.(visit, random);
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
  const watch = (): void => {
    setting.watch?.(queue, agenda.now());
    agenda.after(setting.watchMs ?? 1000, watch);
  };
  if (setting.watch) watch();
  while (agenda.step(setting.untilMs)) for (let turn = 0; turn < TURNS; turn += 1) await Promise.resolve();
  return visits;
}

/** Microtasks between an event and the last outcome that it settles: the queue's, the promise's, the caller's. */
const TURNS = 4;

/** The outcomes of arrivals from `fromMs` on: shares of seat time and of requests. */
export interface Figures {
  /** Seat time of replies whose caller had what it waited for, over all seat time. */
  readonly good: number;
  /** Seat time of callers who left. */
  readonly vain: number;
  readonly refused: number;
  /** Of these, after a wait. */
  readonly refusedLate: number;
  readonly left: number;
  /** Of long requests, served; NaN where there are none. */
  readonly longServed: number;
  /** Waits of the served that 50 and 99 of 100 do not exceed, s. */
  readonly wait50: number;
  readonly wait99: number;
}

export function figuresOf(visits: readonly SimulatedCall[], fromMs: number, toMs: number): Figures {
  const within = visits.filter(({ atMs }) => atMs >= fromMs && atMs < toMs);
  let good = 0;
  let vain = 0;
  for (const visit of visits) {
    if (Number.isNaN(visit.seatedAt)) continue;
    const ended = Number.isNaN(visit.endedAt) ? toMs : visit.endedAt;
    const ms = Math.max(0, Math.min(ended, toMs) - Math.max(visit.seatedAt, fromMs));
    if (visit.end === 'left') vain += ms;
    else good += ms;
  }
  const all = SEATS * (toMs - fromMs);
  const share = (end: SimulatedCall['end']): number =>
    within.filter((visit) => visit.end === end).length / within.length;
  const long = within.filter((visit) => visit.long);
  const waits = within
    .filter(({ end, seatedAt }) => end === 'good' && !Number.isNaN(seatedAt))
    .map(({ seatedAt, atMs }) => (seatedAt - atMs) / 1000)
    .sort((a, b) => a - b);
  const at = (q: number): number => waits[Math.min(waits.length - 1, Math.floor(q * waits.length))] ?? NaN;
  return {
    good: good / all,
    vain: vain / all,
    refused: share('refused'),
    refusedLate: within.filter(({ end, endedAt, atMs }) => end === 'refused' && endedAt > atMs).length / within.length,
    left: share('left'),
    longServed: long.filter(({ end }) => end === 'good').length / long.length,
    wait50: at(0.5),
    wait99: at(0.99),
  };
}
