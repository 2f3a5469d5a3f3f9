/** The seat queues. */
import { PREFIX, type CounterDefinition, type GaugeDefinition, type HistogramDefinition } from '../instruments.js';

const WAIT_SECONDS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60] as const;
const ERROR_SECONDS = [-10, -5, -2.5, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 2.5, 5, 10] as const;

export const QUEUE_WAIT: HistogramDefinition<'model' | 'class'> = {
  name: `${PREFIX}queue_wait_seconds`,
  type: 'histogram',
  unit: 'seconds',
  labels: ['model', 'class'],
  help: 'Wait for a seat, seated requests.',
  advice: 'All classes: too few seats for the load. `batch` alone: as intended while others have work.',
  buckets: WAIT_SECONDS,
};

export const WAIT_ERROR: HistogramDefinition<'model'> = {
  name: `${PREFIX}queue_wait_error_seconds`,
  type: 'histogram',
  unit: 'seconds',
  labels: ['model'],
  help: 'The wait less what it was taken to be, for requests that either waited or were taken to.',
  advice: 'Far above 0: Retry-After is too short; far below: requests are refused that would have been served.',
  buckets: ERROR_SECONDS,
};

export const REFUSALS: CounterDefinition<'model' | 'reason'> = {
  name: `${PREFIX}refusals_total`,
  type: 'counter',
  unit: 'requests',
  labels: ['model', 'reason'],
  help: 'Requests the seat queue refused.',
  advice:
    '`predicted`, `wait`, `full`, `bytes`, `dropped`: overload; add seats or machines. `engine-lost`: see the log.',
};

export const SEATS: GaugeDefinition<'model'> = {
  name: `${PREFIX}seats`,
  type: 'gauge',
  unit: 'seats',
  labels: ['model'],
  help: 'Seats of the engine, whether it is there or not.',
  advice: 'It is the configuration; `models[].seats`.',
};

export const SEATS_BUSY: GaugeDefinition<'model'> = {
  name: `${PREFIX}seats_busy`,
  type: 'gauge',
  unit: 'seats',
  labels: ['model'],
  help: 'Seats that requests hold.',
  advice: 'All of them for long, with requests waiting: the machine is full.',
};

export const WAITING: GaugeDefinition<'model' | 'class'> = {
  name: `${PREFIX}waiting_requests`,
  type: 'gauge',
  unit: 'requests',
  labels: ['model', 'class'],
  help: 'Requests in the queue.',
  advice: 'Its classes together at `queue.waitingPerSeat` for each seat: the longest account loses its newest request.',
};

export const WAITING_BYTES: GaugeDefinition<'model'> = {
  name: `${PREFIX}waiting_bytes`,
  type: 'gauge',
  unit: 'bytes',
  labels: ['model'],
  help: 'Body bytes that waiting requests hold.',
  advice: 'Near `queue.waitingBytes`: raise it if memory allows, or let callers send less.',
};

export const FAIRNESS: GaugeDefinition<'model'> = {
  name: `${PREFIX}fairness_index`,
  type: 'gauge',
  unit: 'ratio',
  labels: ['model'],
  help: 'Jain index of seat time in the last minute, accounts with a backlog.',
  advice: 'Below 0.9 for long with equal weights: report it, with `/admission`. Absent with fewer than two accounts.',
};

const ACCOUNT = ['model', 'account', 'rest'] as const;

export const ACCOUNT_WAITING: GaugeDefinition<(typeof ACCOUNT)[number]> = {
  name: `${PREFIX}account_waiting_requests`,
  type: 'gauge',
  unit: 'requests',
  labels: ACCOUNT,
  help: 'Requests in the queue, by account.',
  advice: 'One account far above the others: it waits for itself; the others do not.',
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
  advice: 'It only grows while an account is named; who pays for the machine.',
};

export const QUEUE_METRICS = [
  SEATS,
  SEATS_BUSY,
  WAITING,
  WAITING_BYTES,
  QUEUE_WAIT,
  WAIT_ERROR,
  REFUSALS,
  FAIRNESS,
  ACCOUNT_WAITING,
  ACCOUNT_BUSY,
  ACCOUNT_SEAT_TIME,
] as const;
