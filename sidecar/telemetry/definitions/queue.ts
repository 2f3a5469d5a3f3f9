/** The seat queues. */
import { PREFIX, type CounterDefinition, type GaugeDefinition, type HistogramDefinition } from '../instruments.js';

/** The longest are of classes that wait for minutes (`queue.maxWaitMs`). */
const WAIT_SECONDS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600] as const;
const ERROR_SECONDS = [-60, -30, -10, -5, -2.5, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60] as const;

export const QUEUE_WAIT: HistogramDefinition<'model' | 'class'> = {
  name: `${PREFIX}queue_wait_seconds`,
  type: 'histogram',
  unit: 'seconds',
  labels: ['model', 'class'],
  help: 'Wait for the first seat, of requests that got one.',
  advice:
    'High for all classes: too few seats for the load. High for `batch` only: expected while other classes have work.',
  buckets: WAIT_SECONDS,
};

export const WAIT_ERROR: HistogramDefinition<'model'> = {
  name: `${PREFIX}queue_wait_error_seconds`,
  type: 'histogram',
  unit: 'seconds',
  labels: ['model'],
  help: 'The actual wait for the first seat less the predicted wait, for requests where one of them is above 0.',
  advice:
    'Far above 0: Retry-After is too short; far below: requests are refused although they would have been served in time.',
  buckets: ERROR_SECONDS,
};

export const REFUSALS: CounterDefinition<'model' | 'reason'> = {
  name: `${PREFIX}refusals_total`,
  type: 'counter',
  unit: 'requests',
  labels: ['model', 'reason'],
  help: 'Requests that the seat queue refused.',
  advice:
    '`standing`, `patience`, `hopeless`, `predicted`, `wait`, `full`, `bytes`, `dropped`: overload; add seats or machines. `named`: the client’s timeout is short. `engine-lost`, `no-engine`: see the log.',
};

export const RETRY_TIMES: CounterDefinition<'model' | 'time'> = {
  name: `${PREFIX}retry_times_total`,
  type: 'counter',
  unit: 'requests',
  labels: ['model', 'time'],
  help: 'Refusals of the seat queue by where Retry-After came from: the predicted wait, a reserved time, or a long time because none could be reserved. Not during a drain, nor of a request whose engine was lost each time.',
  advice: '`none` growing for long: far more requests arrive than the seats can serve; add seats or machines.',
};

export const PATIENCE: GaugeDefinition<'model' | 'awaits' | 'quantile'> = {
  name: `${PREFIX}patience_seconds`,
  type: 'gauge',
  unit: 'seconds',
  labels: ['model', 'awaits', 'quantile'],
  help: 'The time by which this share of callers has left, before the first token of a stream or the end of a whole reply.',
  advice: 'No action: it is a property of the callers. Absent if fewer leave.',
};

export const LEFT_SEAT_TIME: GaugeDefinition<'model'> = {
  name: `${PREFIX}left_seat_seconds`,
  type: 'gauge',
  unit: 'seconds',
  labels: ['model'],
  help: 'Seat time so far of requests whose callers left before they had what they waited for.',
  advice: 'Growing fast beside `ra_sidecar_account_seat_seconds`: callers are less patient than replies are long.',
};

export const STANDING: GaugeDefinition<'model'> = {
  name: `${PREFIX}queue_standing`,
  type: 'gauge',
  unit: '0 or 1',
  labels: ['model'],
  help: '1: requests wait, and for some time more have arrived than the seats, or those that are long enough for them, can serve; 0: not.',
  advice: '1 for long: add seats or machines.',
};

export const SEATS: GaugeDefinition<'model'> = {
  name: `${PREFIX}seats`,
  type: 'gauge',
  unit: 'seats',
  labels: ['model'],
  help: 'Seats of the engine’s replicas that are ready; of all of them while none is.',
  advice:
    'Below the sum of `models[].seats` over the replicas: one of them is not ready, see `ra_sidecar_replica_state`, or is an external server that showed that it has too much (docs/engines.md).',
};

export const SEATS_BUSY: GaugeDefinition<'model'> = {
  name: `${PREFIX}seats_busy`,
  type: 'gauge',
  unit: 'seats',
  labels: ['model'],
  help: 'Seats that requests hold.',
  advice: 'At the number of seats for long, with waiting requests: the machine is full.',
};

export const WAITING: GaugeDefinition<'model' | 'class'> = {
  name: `${PREFIX}waiting_requests`,
  type: 'gauge',
  unit: 'requests',
  labels: ['model', 'class'],
  help: 'Requests in the queue.',
  advice:
    'If the sum over classes reaches `queue.waitingPerSeat` for each seat, the account with the longest queue loses its newest request.',
};

export const WAITING_BYTES: GaugeDefinition<'model'> = {
  name: `${PREFIX}waiting_bytes`,
  type: 'gauge',
  unit: 'bytes',
  labels: ['model'],
  help: 'Body bytes of waiting requests.',
  advice: 'Near `queue.waitingBytes`: raise it if memory allows, or let callers send shorter bodies.',
};

export const FAIRNESS: GaugeDefinition<'model'> = {
  name: `${PREFIX}fairness_index`,
  type: 'gauge',
  unit: 'ratio',
  labels: ['model'],
  help: 'Jain’s fairness index of seat time in the last minute, over accounts with a backlog.',
  advice: 'Below 0.9 for long with equal weights: report it, with `/admission`. Absent with fewer than two accounts.',
};

const ACCOUNT = ['model', 'account', 'rest'] as const;

export const ACCOUNT_WAITING: GaugeDefinition<(typeof ACCOUNT)[number]> = {
  name: `${PREFIX}account_waiting_requests`,
  type: 'gauge',
  unit: 'requests',
  labels: ACCOUNT,
  help: 'Requests in the queue, by account.',
  advice: 'One account far above the others delays only itself.',
};

export const ACCOUNT_BUSY: GaugeDefinition<(typeof ACCOUNT)[number]> = {
  name: `${PREFIX}account_seats_busy`,
  type: 'gauge',
  unit: 'seats',
  labels: ACCOUNT,
  help: 'Seats held, by account.',
  advice: 'As `ra_sidecar_account_waiting_requests`.',
};

export const ACCOUNT_SEAT_TIME: GaugeDefinition<(typeof ACCOUNT)[number]> = {
  name: `${PREFIX}account_seat_seconds`,
  type: 'gauge',
  unit: 'seconds',
  labels: ACCOUNT,
  help: 'Seat time held so far, by account.',
  advice: 'Shows how the machine is shared. It grows while an account is named.',
};

export const QUEUE_METRICS = [
  SEATS,
  SEATS_BUSY,
  WAITING,
  WAITING_BYTES,
  QUEUE_WAIT,
  WAIT_ERROR,
  REFUSALS,
  RETRY_TIMES,
  PATIENCE,
  LEFT_SEAT_TIME,
  STANDING,
  FAIRNESS,
  ACCOUNT_WAITING,
  ACCOUNT_BUSY,
  ACCOUNT_SEAT_TIME,
] as const;
