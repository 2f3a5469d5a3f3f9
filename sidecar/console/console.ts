/**
 * The operators' console: its page, and the live feed of its viewers: one snapshot per interval, made once for all viewers and
 * only while there is one. Nothing is queued: a viewer that has not read the last snapshot misses the next one.
 *
 *     no viewer ──join()──> active: take, send to all, wait ─┐
 *       ^                    ^                              │
 *       └── last leave() ────┴──────── the interval ────────┘
 */
import type { Clock } from '../lib/clock.js';
import { contractError } from '../domain/errors.js';
import type { Exchange } from '../http/exchange.js';
import type { Handler, Routes } from '../http/server.js';
import type { Metrics } from '../telemetry/metrics.js';
import { PAGE_FILES, PageFiles } from './page-files.js';
import { SeatPlan, takeSnapshot, type WatchedServices } from './snapshot.js';

/** Retry-After of a refused viewer, ms; viewers stay connected for long. */
const FULL_RETRY_MS = 10_000;

export interface ConsoleParts {
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly config: FeedOptions;
  readonly onFault: (fault: unknown) => void;
  /** Read at each snapshot. */
  readonly watched: () => WatchedServices;
}

export interface Console {
  /** Served without a key: the page contains no data. */
  readonly page: Routes;
  /** Requires a key if one is configured. */
  readonly feed: Routes;
  /** Ends all feeds, whose pages connect again by themselves: with a key that is not valid any more they are refused. */
  dismiss(): void;
  /** Ends all feeds, and accepts no more. Idempotent. */
  close(): void;
}

/** The routes if `console.viewers` is 0. */
const NO_CONSOLE: Console = { page: {}, feed: {}, dismiss: () => undefined, close: () => undefined };

/** The console's routes. Nothing is read or made before the first request for them. */
export function openConsole({ clock, metrics, config, onFault, watched }: ConsoleParts): Console {
  if (config.viewers === 0) return NO_CONSOLE;
  const plans = new Map<string, SeatPlan>();
  const plan = (model: string): SeatPlan => {
    let known = plans.get(model);
    if (!known) plans.set(model, (known = new SeatPlan()));
    return known;
  };
  const startedAt = Math.round(performance.timeOrigin);
  const parts = { clock, metrics, startedAt, intervalMs: config.intervalMs, plan };
  const feed = new ConsoleFeed(
    clock,
    config,
    async () => JSON.stringify(await takeSnapshot(parts, watched())),
    onFault,
  );
  const files = new PageFiles();
  const page = Object.entries(PAGE_FILES).map(([path, name]): [string, { GET: Handler }] => [
    path,
    { GET: (exchange) => files.send(exchange, name) },
  ]);
  return {
    page: Object.fromEntries(page),
    feed: { '/console/events': { GET: (exchange) => watch(exchange, feed) } },
    dismiss: () => feed.dismiss(),
    close: () => feed.close(),
  };
}

/** GET /console/events: snapshots as server-sent events, until the viewer disconnects or the sidecar ends. */
export function watch(exchange: Exchange, feed: ConsoleFeed): void {
  if (feed.full) {
    const error = contractError('capacity_exceeded', 'The number of viewers has reached `console.viewers`.', {
      retryAfterMs: FULL_RETRY_MS,
    });
    exchange.fail(error);
    return;
  }
  const viewer = exchange.stream({ 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff' });
  if (exchange.head.method === 'HEAD' || exchange.gone.aborted) return;
  exchange.gone.addEventListener('abort', () => feed.leave(viewer));
  feed.join(viewer);
}

/** One open stream. */
export interface Viewer {
  /** Bytes that its reader has not read; 0: all are sent. */
  unread(): number;
  /** Sends one frame; the text has no line break. */
  event(text: string): void;
  /** Ends the stream. */
  end(): void;
}

export interface FeedOptions {
  /** Time from the end of one snapshot to the start of the next, ms. */
  readonly intervalMs: number;
  /** The most viewers at once. */
  readonly viewers: number;
}

/**
 * The feed. The code that makes it closes it; the code that opens a viewer's stream owns the viewer and reports when it
 * has left.
 */
export class ConsoleFeed {
  readonly #clock: Clock;
  readonly #options: FeedOptions;
  readonly #take: () => Promise<string>;
  readonly #onFault: (fault: unknown) => void;
  readonly #viewers = new Set<Viewer>();
  /** The last snapshot while there are viewers, which a new viewer gets at once. */
  #last: string | undefined;
  #taking = false;
  #cancel: () => void = () => undefined;
  #closed = false;

  /** `take` makes a snapshot on one line. If it fails, `onFault` is called and all streams are ended. */
  constructor(clock: Clock, options: FeedOptions, take: () => Promise<string>, onFault: (fault: unknown) => void) {
    this.#clock = clock;
    this.#options = options;
    this.#take = take;
    this.#onFault = onFault;
  }

  /** Whether the limit of viewers is reached. */
  get full(): boolean {
    return this.#closed || this.#viewers.size >= this.#options.viewers;
  }

  /** Sends to `viewer` from now on, until it leaves or the feed is closed. Must not be called while {@link full}. */
  join(viewer: Viewer): void {
    this.#viewers.add(viewer);
    if (this.#last !== undefined) viewer.event(this.#last);
    else this.#round();
  }

  /** `viewer` has disconnected. Idempotent. */
  leave(viewer: Viewer): void {
    this.#viewers.delete(viewer);
    if (this.#viewers.size === 0) this.#goIdle();
  }

  /** Ends all streams; new viewers are accepted. */
  dismiss(): void {
    for (const viewer of this.#viewers) viewer.end();
    this.#viewers.clear();
    this.#goIdle();
  }

  /** Ends all streams and stops making snapshots. Idempotent. */
  close(): void {
    this.#closed = true;
    this.dismiss();
  }

  #round(): void {
    // A snapshot that is being made is sent to viewers that joined meanwhile.
    if (this.#taking) return;
    this.#taking = true;
    this.#take().then(
      (text) => {
        this.#taking = false;
        if (this.#viewers.size > 0) this.#send(text);
      },
      (fault: unknown) => {
        this.#taking = false;
        this.#onFault(fault);
        // Their pages reconnect with increasing delays.
        this.dismiss();
      },
    );
  }

  #send(text: string): void {
    this.#last = text;
    for (const viewer of this.#viewers) if (viewer.unread() === 0) viewer.event(text);
    this.#cancel = this.#clock.after(this.#options.intervalMs, () => this.#round());
  }

  #goIdle(): void {
    this.#cancel();
    this.#last = undefined;
  }
}
