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
import { SeatPlan, takeSnapshot, type WatchedServices } from './snapshot.js';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';

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
  const parts = { clock, metrics, startedAt: Math.round(performance.timeOrigin), intervalMs: config.intervalMs, plan };
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

/** The feed. The code that makes it closes it; the code that opens a viewer's stream owns the viewer and reports when it has left. */
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

/** The console's page: a few files beside the sources, sent unchanged. */

/** They are beside the sources, not in dist/, since they are not compiled. */
const FOLDER = new URL('../../../sidecar/console/page/', import.meta.url);

const STYLES = ['console', 'parts', 'seats', 'keys', 'preferences'].map((name) => `${name}.css`);
const SCRIPTS = [
  ...['main', 'feed', 'history', 'replicas', 'seats', 'sums', 'histogram', 'model', 'upkeep', 'counts', 'dom', 'text'],
  ...['keys', 'keys-account', 'keys-form', 'keys-text'],
].map((name) => `${name}.js`);

/** Each file by the path that it is served at. */
export const PAGE_FILES: Readonly<Record<string, string>> = {
  '/console': 'index.html',
  ...Object.fromEntries([...STYLES, 'icon.svg', ...SCRIPTS].map((name) => [`/console/${name}`, name])),
};

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
};

/**
 * The browser's restrictions for the page: only its own files, no inline script or style, no request to another host, no text parsed as
 * markup, no frame around it.
 */
const GUARDS = {
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  // Cached, but revalidated at each visit, so that a new version is used at once.
  'Cache-Control': 'no-cache',
} as const;

interface Loaded {
  readonly body: Uint8Array;
  readonly fields: Readonly<Record<string, string>>;
}

/** The page's files, read at the first request and kept: they change only with the version, that is, in a new process. */
export class PageFiles {
  readonly #read: (file: URL) => Promise<Uint8Array>;
  readonly #loaded = new Map<string, Promise<Loaded>>();

  /** `read`: tests pass their own. */
  constructor(read: (file: URL) => Promise<Uint8Array> = readFile) {
    this.#read = read;
  }

  /**
   * Answers with a file, or with 304 if the browser has it. Rejects if the file cannot be read: it does not exist, which
   * means a broken installation, or the process has no more descriptors; the next request reads it again.
   */
  async send(exchange: Exchange, name: string): Promise<void> {
    const { body, fields } = await this.#load(name);
    const known = exchange.head.header('if-none-match')?.split(',') ?? [];
    if (known.some((tag) => tag.trim().replace(/^W\//, '') === fields['ETag'])) {
      exchange.reply({ status: 304, headers: fields });
    } else {
      exchange.reply({ status: 200, headers: fields, body });
    }
  }

  #load(name: string): Promise<Loaded> {
    let loaded = this.#loaded.get(name);
    if (!loaded) {
      this.#loaded.set(name, (loaded = this.#read(new URL(name, FOLDER)).then((body) => loadedOf(name, body))));
      loaded.catch(() => this.#loaded.delete(name));
    }
    return loaded;
  }
}

function loadedOf(name: string, body: Uint8Array): Loaded {
  const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
  const tag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  return { body, fields: { 'Content-Type': type, ETag: tag, ...GUARDS } };
}
