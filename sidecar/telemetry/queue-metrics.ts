/** The seat queues. Accounts, the operator's own names, are the only label without a closed list, and only the busiest are named. */
import { REFUSAL_REASONS, type RefusalReason } from '../domain/refusal-reasons.js';
import { SERVICE_CLASSES, type ServiceClass } from '../domain/service-class.js';
import { modelLabel, type Instruments } from './instruments.js';

/** The longest are of classes that wait for minutes (`queue.maxWaitMs`). */
const WAIT_SECONDS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600] as const;
const ERROR_SECONDS = [-60, -30, -10, -5, -2.5, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60] as const;

/** Where Retry-After came from. */
const RETRY_KINDS = ['predicted', 'reserved', 'none'] as const;
export type RetryLabel = (typeof RETRY_KINDS)[number];

/** What a turn of a session began with: its kept seat, another seat, or no known session. */
const TURNS = ['kept', 'cold', 'first'] as const;
/** How a kept seat ended: by the next turn, its time, another account, or with the engine or at a drain. */
const KEEPS = ['continued', 'expired', 'taken', 'lost'] as const;

/** How a lent seat ended: with its request, for another request, or never given: its request entered the queue. */
const LENT_ENDS = ['ended', 'recalled', 'queued'] as const;

/** The state of one model's queue at a scrape. */
export interface QueueReading {
  readonly seats: number;
  readonly busy: number;
  /** Seats that are kept for sessions, and not held. */
  readonly kept: number;
  readonly waitingBy: Readonly<Record<ServiceClass, number>>;
  readonly waitingBytes: number;
  /** Jain's index of the last minute; null: fewer than two accounts. */
  readonly fairness: number | null;
  /** What the queue learned of overload. Times in ms; null: not known. */
  readonly overload: {
    readonly standing: boolean;
    readonly leftMs: number;
    readonly patience: Readonly<Record<'first-token' | 'end', Readonly<Record<'p10' | 'p50' | 'p90', number | null>>>>;
  };
  /** Turns of sessions by the seat that they got, and kept seats by how that ended. Since the start. */
  readonly sessions: {
    readonly turns: Readonly<Record<(typeof TURNS)[number], number>>;
    readonly keeps: Readonly<Record<(typeof KEEPS)[number], number>>;
  };
  /** Seats that are lent now, requests that wait for one, ends since the start, and the seat time of all and of recalled ones, ms. */
  readonly lent: {
    readonly seats: number;
    readonly waiting: number;
    readonly ends: Readonly<Record<(typeof LENT_ENDS)[number], number>>;
    readonly seatMs: number;
    readonly recalledMs: number;
  };
  readonly accounts: readonly (AccountReading & { readonly account: string })[];
  /** All that are not in `accounts`. */
  readonly others: AccountReading;
}

interface AccountReading {
  readonly waiting: number;
  readonly running: number;
  readonly seatMs: number;
}

export interface Granted {
  readonly waitedMs: number;
  /** The predicted wait; undefined if none was predicted. */
  readonly predictedMs?: number | undefined;
  readonly class: ServiceClass;
}

/** Accounts of a model with their own series. */
export const NAMED_ACCOUNTS = 20;

const QUANTILES = [
  ['0.1', 'p10'],
  ['0.5', 'p50'],
  ['0.9', 'p90'],
] as const;

/** `rest`: of the sum over all other accounts, whose account is empty; so no account can be confused with it. */
const ACCOUNT = ['model', 'account', 'rest'] as const;

/** Declares the metrics of the seat queues. `ids`: of the configured models; `models`: their queues. */
export function queueMetrics(
  instruments: Instruments,
  ids: readonly string[],
  models: ReadonlyMap<string, { readonly queue: (named: number) => QueueReading }>,
) {
  const readings = instruments.onceAScrape(() =>
    Array.from(models, ([model, { queue }]) => ({ model, ...queue(NAMED_ACCOUNTS) })),
  );
  /** No sample of a model where the value is null. */
  const byModel = (value: (reading: QueueReading) => number | null) =>
    function* () {
      for (const { model, ...reading } of readings()) {
        const now = value(reading);
        if (now !== null) yield [{ model }, now] as const;
      }
    };
  const byModelAnd =
    <L extends string, V extends string>(
      label: L,
      values: readonly V[],
      counts: (reading: QueueReading) => Readonly<Record<V, number>>,
    ) =>
    () =>
      readings().flatMap(({ model, ...reading }) =>
        values.map(
          (value) => [{ model, [label]: value } as Record<L | 'model', string>, counts(reading)[value]] as const,
        ),
      );
  instruments.gauge('ra_sidecar_seats', 'seats', {
    labels: ['model'],
    help: 'Seats of the replicas that are ready; of all while none is.',
    advice:
      'Below what is configured: a replica is not ready (`ra_sidecar_replica_state`), or is an external server that has too much (docs/engines.md).',
    collect: byModel(({ seats }) => seats),
  });
  instruments.gauge('ra_sidecar_seats_busy', 'seats', {
    labels: ['model'],
    help: 'Seats that requests hold.',
    advice: 'All for long, with waiting requests: the machine is full.',
    collect: byModel(({ busy }) => busy),
  });
  instruments.gauge('ra_sidecar_seats_kept', 'seats', {
    labels: ['model'],
    help: 'Idle seats that are kept for sessions between two turns.',
    advice: 'Near all seats for long: more agents work than there are seats.',
    collect: byModel(({ kept }) => kept),
  });
  instruments.gauge('ra_sidecar_session_turns', 'requests', {
    labels: ['model', 'seat'],
    help: 'Turns of sessions since the start, by the seat that they got.',
    advice: 'Many `cold` beside `kept`: more seats, or a longer `sessions.keepMaxMs`.',
    collect: byModelAnd('seat', TURNS, ({ sessions }) => sessions.turns),
  });
  instruments.gauge('ra_sidecar_session_keeps', 'seats', {
    labels: ['model', 'end'],
    help: 'Kept seats since the start, by how that ended.',
    advice: 'Mostly `expired`: clients pause for longer than a prompt takes to compute; no fault.',
    collect: byModelAnd('end', KEEPS, ({ sessions }) => sessions.keeps),
  });
  instruments.gauge('ra_sidecar_seats_lent', 'seats', {
    labels: ['model'],
    help: 'Seats lent to requests of class `batch`, which do not count as busy.',
    advice: '0 for long while requests wait for them: other requests use the seats.',
    collect: byModel(({ lent }) => lent.seats),
  });
  instruments.gauge('ra_sidecar_lent_waiting_requests', 'requests', {
    labels: ['model'],
    help: 'Requests of class `batch` that wait for a lent seat, not in `ra_sidecar_waiting_requests`.',
    advice: 'No action.',
    collect: byModel(({ lent }) => lent.waiting),
  });
  instruments.gauge('ra_sidecar_lent_seats_ended', 'seats', {
    labels: ['model', 'end'],
    help: 'Lent seats since the start, by how that ended, and requests that entered the queue.',
    advice: 'Many `recalled` beside `ended`: raise `batch.headroomPercent`, or send shorter requests.',
    collect: byModelAnd('end', LENT_ENDS, ({ lent }) => lent.ends),
  });
  instruments.gauge('ra_sidecar_lent_seat_seconds', 'seconds', {
    labels: ['model', 'attempt'],
    help: 'Seat time of lent seats so far.',
    advice: 'As `ra_sidecar_lent_seats_ended`.',
    *collect() {
      for (const { model, lent } of readings()) {
        yield [{ model, attempt: 'kept' }, (lent.seatMs - lent.recalledMs) / 1000];
        yield [{ model, attempt: 'recalled' }, lent.recalledMs / 1000];
      }
    },
  });
  instruments.gauge('ra_sidecar_waiting_requests', 'requests', {
    labels: { model: ids, class: SERVICE_CLASSES },
    help: 'Requests in the queue.',
    advice: 'At `queue.waitingPerSeat` for each seat the account with the longest queue loses its newest one.',
    collect: byModelAnd('class', SERVICE_CLASSES, ({ waitingBy }) => waitingBy),
  });
  instruments.gauge('ra_sidecar_waiting_bytes', 'bytes', {
    labels: ['model'],
    help: 'Body bytes of waiting requests.',
    advice: 'Near `queue.waitingBytes`: raise it if memory allows.',
    collect: byModel(({ waitingBytes }) => waitingBytes),
  });
  const waits = instruments.histogram('ra_sidecar_queue_wait_seconds', 'seconds', {
    // From the start, so that a rate does not miss the first values.
    labels: { model: ids, class: SERVICE_CLASSES },
    help: 'Wait for the first seat, of requests that got one.',
    advice: 'High for all classes: too few seats. For `batch` only: expected.',
    buckets: WAIT_SECONDS,
  });
  const errors = instruments.histogram('ra_sidecar_queue_wait_error_seconds', 'seconds', {
    labels: ['model'],
    help: 'The actual wait for the first seat less the predicted one, where one of them is above 0.',
    advice: 'Far above 0: Retry-After is too short; far below: requests are refused needlessly.',
    buckets: ERROR_SECONDS,
  });
  const refusals = instruments.counter('ra_sidecar_refusals_total', 'requests', {
    labels: { model: ids, reason: REFUSAL_REASONS },
    help: 'Requests that the seat queue refused.',
    advice: 'By reason: docs/admission.md#what-a-429-means. `engine-lost`, `no-engine`: see the log.',
  });
  const retries = instruments.counter('ra_sidecar_retry_times_total', 'requests', {
    labels: { model: ids, time: RETRY_KINDS },
    help: 'Refusals of the seat queue by where Retry-After came from.',
    advice: '`none` growing for long: add seats or machines.',
  });
  instruments.gauge('ra_sidecar_patience_seconds', 'seconds', {
    labels: ['model', 'awaits', 'quantile'],
    help: 'The time by which this share of callers has left unserved.',
    advice: 'No action. Absent if fewer leave.',
    *collect() {
      for (const { model, overload } of readings()) {
        for (const awaits of ['first-token', 'end'] as const) {
          for (const [quantile, name] of QUANTILES) {
            const ms = overload.patience[awaits][name];
            if (ms !== null) yield [{ model, awaits, quantile }, ms / 1000];
          }
        }
      }
    },
  });
  instruments.gauge('ra_sidecar_left_seat_seconds', 'seconds', {
    labels: ['model'],
    help: 'Seat time so far of requests whose callers left unserved.',
    advice: 'Growing fast: callers are less patient than replies are long.',
    collect: byModel(({ overload }) => overload.leftMs / 1000),
  });
  instruments.gauge('ra_sidecar_queue_standing', '0 or 1', {
    labels: ['model'],
    help: '1: more requests arrive than the seats can serve.',
    advice: '1 for long: add seats or machines.',
    collect: byModel(({ overload }) => (overload.standing ? 1 : 0)),
  });
  instruments.gauge('ra_sidecar_fairness_index', 'ratio', {
    labels: ['model'],
    help: 'Jain’s index of seat time in the last minute, over accounts with a backlog.',
    advice: 'Below 0.9 for long with equal weights: report it, with `/admission`. Absent below two accounts.',
    collect: byModel(({ fairness }) => fairness),
  });
  const byAccount = (value: (reading: AccountReading) => number) =>
    function* () {
      for (const { model, accounts, others } of readings()) {
        for (const each of accounts) yield [{ model, account: each.account, rest: 'false' }, value(each)] as const;
        yield [{ model, account: '', rest: 'true' }, value(others)] as const;
      }
    };
  instruments.gauge('ra_sidecar_account_waiting_requests', 'requests', {
    labels: ACCOUNT,
    help: 'Requests in the queue, by account.',
    advice: 'One far above the others delays only itself.',
    collect: byAccount(({ waiting }) => waiting),
  });
  instruments.gauge('ra_sidecar_account_seats_busy', 'seats', {
    labels: ACCOUNT,
    help: 'Busy seats, by account.',
    advice: 'As `ra_sidecar_account_waiting_requests`.',
    collect: byAccount(({ running }) => running),
  });
  instruments.gauge('ra_sidecar_account_seat_seconds', 'seconds', {
    labels: ACCOUNT,
    help: 'Seat time held so far, by account.',
    advice: 'Shows how the machine is shared.',
    collect: byAccount(({ seatMs }) => seatMs / 1000),
  });
  const labelOf = modelLabel(ids);
  return {
    /** A request got its first seat. */
    seated(id: string, { waitedMs, predictedMs, class: label }: Granted): void {
      const model = labelOf(id);
      waits.observe({ model, class: label }, waitedMs / 1000);
      if (predictedMs === undefined || (waitedMs === 0 && predictedMs === 0)) return;
      errors.observe({ model }, (waitedMs - predictedMs) / 1000);
    },
    /** The seat queue refused. `time`: where Retry-After came from; undefined if it came from none of these. */
    refused(id: string, reason: RefusalReason, time?: RetryLabel): void {
      const model = labelOf(id);
      refusals.inc({ model, reason });
      if (time !== undefined) retries.inc({ model, time });
    },
  };
}
