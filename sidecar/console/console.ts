/** The operators' console: its page and its live feed. */
import type { Clock } from '../lib/clock.js';
import { contractError } from '../domain/errors.js';
import type { Exchange } from '../http/exchange.js';
import type { Handler, Routes } from '../http/routes.js';
import type { Metrics } from '../telemetry/metrics.js';
import { ConsoleFeed, type FeedOptions } from './feed.js';
import { PAGE_FILES, PageFiles } from './page-files.js';
import { SeatPlan } from './seat-plan.js';
import { takeSnapshot, type WatchedServices } from './snapshot.js';

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
