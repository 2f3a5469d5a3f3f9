import type { Clock } from '../protocol/clock.js';
import { type Adapter, type LoadReading, ASK_MS } from './adapter.js';
import type { ServerClient } from './server-client.js';

/** Readings while a closed request is awaited, ms: the first ones soon, since most servers end it at its next token. */
const LEAVING_MS = [5, 10, 20, 40, 80, 160, 250] as const;
/** While requests run, ms. */
const RUNNING_MS = 1000;
/** While none does, ms. The server is also asked whether it is still the same. */
const IDLE_MS = 5000;

/**
 * A server that is to compute nothing, and has computed nothing for this long, is at rest, ms: longer than the step takes that
 * was computed when the last request was closed.
 */
const REST_MS = 2000;

/** The part of a server's KV memory in use from which on it is short, since it puts requests back when it is full. */
const KV_FULL = 0.95;

export interface LoadWatchEvents {
  /** Requests in flight, those of them that have reached the server, and closed ones. */
  counts(): { readonly flights: number; readonly reached: number; readonly leaving: number };
  /** As {@link Leaving.confirm}. */
  running(count: number, wanted: number, at: number): void;
  /** The server is at rest; what was closed before this clock reading is not computed any more, whatever it counts. */
  rested(before: number): void;
  /** After each reading, or when it failed. */
  looked(): void;
  short(): void;
  ample(): void;
  /** The server has computed something since the last reading. */
  moved(): void;
  /** The server is to be asked whether it is still there and the same. */
  suspect(): Promise<void>;
}

/** Reads a server's metrics, as often as what it is given needs. One reading at a time. */
export class LoadWatch {
  readonly #clock: Clock;
  readonly #adapter: Pick<Adapter, 'load'>;
  readonly #events: LoadWatchEvents;
  #cancel: (() => void) | undefined;
  #dueAt = Infinity;
  #looking = false;
  #stopped = false;
  /** Readings since requests began to leave. */
  #looks = 0;
  #last: LoadReading | undefined;
  /** Clock reading since which nothing has been in flight and nothing was computed. */
  #restsSince: number | undefined;

  constructor(clock: Clock, adapter: Pick<Adapter, 'load'>, events: LoadWatchEvents) {
    this.#clock = clock;
    this.#adapter = adapter;
    this.#events = events;
    this.schedule();
  }

  /** Schedules the next reading anew: how soon it is due depends on what is in flight and leaving. */
  schedule(): void {
    if (this.#looking || this.#stopped) return;
    const { flights, leaving } = this.#events.counts();
    if (leaving === 0) this.#looks = 0;
    const soon = LEAVING_MS[Math.min(this.#looks, LEAVING_MS.length - 1)] ?? RUNNING_MS;
    const dueAt = this.#clock.now() + (leaving > 0 ? soon : flights > 0 ? RUNNING_MS : IDLE_MS);
    if (dueAt >= this.#dueAt) return;
    this.#cancel?.();
    this.#dueAt = dueAt;
    this.#cancel = this.#clock.after(dueAt - this.#clock.now(), () => void this.#look());
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel?.();
  }

  async #look(): Promise<void> {
    this.#looking = true;
    this.#dueAt = Infinity;
    this.#looks += 1;
    const askedAt = this.#clock.now();
    const before = this.#events.counts();
    const reading = await this.#adapter.load();
    if (reading === undefined || before.flights + before.leaving === 0) await this.#events.suspect();
    if (this.#stopped) return;
    if (reading) this.#read(reading, before, askedAt);
    this.#looking = false;
    this.#events.looked();
    this.schedule();
  }

  #read(reading: LoadReading, before: ReturnType<LoadWatchEvents['counts']>, askedAt: number): void {
    const { running, waiting = 0, preempted, computed, kvUse = 0 } = reading;
    const last = this.#last;
    this.#last = reading;
    const moved = computed !== last?.computed;
    if (moved) this.#events.moved();
    const { flights, reached, leaving } = this.#events.counts();
    // What ended or began meanwhile may or may not be in the reading.
    if (leaving > 0) this.#events.running(running + waiting, Math.min(reached, before.reached), askedAt);
    const rests = !moved && flights + before.flights === 0;
    this.#restsSince = rests ? (this.#restsSince ?? askedAt) : undefined;
    if (this.#restsSince !== undefined && askedAt - this.#restsSince >= REST_MS) this.#events.rested(askedAt - REST_MS);
    const more = preempted !== undefined && last?.preempted !== undefined && preempted > last.preempted;
    const short = waiting > 0 || more || kvUse >= KV_FULL;
    if (!short) this.#events.ample();
    // What a server at rest says may be what it said at its last step.
    else if (!rests) this.#events.short();
  }
}

/** A server's names for what a {@link LoadReading} has, without their common prefix. Absent: it has no such metric. */
export interface LoadMetrics {
  readonly prefix: string;
  readonly running: string;
  /** Their sum is `computed`. */
  readonly computed: readonly string[];
  readonly waiting?: string;
  readonly preempted?: string;
  /** A share of 1. Of several ranks the fullest counts. */
  readonly kvUse?: string;
}

/** Reads a server's `/metrics`. Returns undefined if it did not answer, or does not report how many requests run. */
export async function readLoad(
  client: Pick<ServerClient, 'ask'>,
  metrics: LoadMetrics,
): Promise<LoadReading | undefined> {
  const answer = await client.ask('GET', '/metrics', ASK_MS);
  if (answer.kind !== 'text') return undefined;
  const valueOf = (name: string | undefined): number | undefined =>
    name === undefined ? undefined : metricOf(answer.text, `${metrics.prefix}:${name}`);
  const running = valueOf(metrics.running);
  if (running === undefined) return undefined;
  const [waiting, preempted] = [valueOf(metrics.waiting), valueOf(metrics.preempted)];
  const kvUses = metrics.kvUse === undefined ? [] : seriesOf(answer.text, `${metrics.prefix}:${metrics.kvUse}`);
  return {
    running,
    computed: metrics.computed.reduce((sum, name) => sum + (valueOf(name) ?? 0), 0),
    ...(waiting !== undefined && { waiting }),
    ...(preempted !== undefined && { preempted }),
    ...(kvUses.length > 0 && { kvUse: Math.max(...kvUses) }),
  };
}

/** The sum of a metric's series in Prometheus' text format; undefined if it has none. */
export function metricOf(text: string, name: string): number | undefined {
  const values = seriesOf(text, name);
  return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) : undefined;
}

/** The values of a metric's series, such as one for each data-parallel rank. */
function seriesOf(text: string, name: string): readonly number[] {
  return text.split('\n').flatMap((line) => {
    if (!line.startsWith(name)) return [];
    const rest = line.slice(name.length);
    if (rest[0] !== ' ' && rest[0] !== '{') return [];
    const [value = ''] = rest
      .slice(rest.lastIndexOf('}') + 1)
      .trim()
      .split(/\s+/);
    const number = Number(value);
    return value !== '' && Number.isFinite(number) ? [number] : [];
  });
}
