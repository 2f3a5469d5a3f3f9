/** The operators' console: its page and the feed that keeps it live. */
import type { Clock } from '../lib/clock.js';
import { contractError } from '../domain/errors.js';
import type { Exchange } from '../http/exchange.js';
import type { Handler, Routes } from '../http/server.js';
import type { Metrics } from '../telemetry/metrics.js';
import { ConsoleFeed, type FeedOptions } from './feed.js';
import { PAGE_FILES, PageFiles } from './page-files.js';
import { SeatPlan } from './seat-plan.js';
import { takeSnapshot, type Watched } from './snapshot.js';

/** When a viewer is to come back for whom there was no place, ms: they stay for long. */
const FULL_RETRY_MS = 10_000;

export interface ConsoleParts {
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly config: FeedOptions;
  readonly onFault: (fault: unknown) => void;
  /** Asked at each snapshot. */
  readonly watched: () => Watched;
}

export interface Console {
  /** Without a key: the page holds nothing. */
  readonly page: Routes;
  /** What has to be guarded: the feed. */
  readonly feed: Routes;
  /** Ends all feeds. Idempotent. */
  close(): void;
}

/** What is served where `console.viewers` is 0. */
const NO_CONSOLE: Console = { page: {}, feed: {}, close: () => undefined };

/** The console's routes. Nothing is read or made before somebody asks for them. */
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
    close: () => feed.close(),
  };
}

/** GET /console/events: snapshots as server-sent events, until the viewer leaves or the sidecar does. */
export function watch(exchange: Exchange, feed: ConsoleFeed): void {
  if (feed.full) {
    const error = contractError('capacity_exceeded', 'As many viewers as may watch are watching: `console.viewers`.', {
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
