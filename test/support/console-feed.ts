/** The console’s feed as its page reads it, and the numbers that it must equal. */
import type { Test } from 'tap';
import type { HistogramView, Snapshot } from '../../sidecar/console/views.js';

/** One viewer over HTTP. Its owner closes it. */
export class FeedReader {
  readonly response: Response;
  readonly #leave: AbortController;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  readonly #decoder = new TextDecoder();
  #rest = '';

  private constructor(response: Response, leave: AbortController) {
    this.response = response;
    this.#leave = leave;
    this.#reader = (response.body as ReadableStream<Uint8Array> | null)?.getReader();
  }

  static async open(port: number, headers: Readonly<Record<string, string>> = {}): Promise<FeedReader> {
    const leave = new AbortController();
    const url = `http://127.0.0.1:${port}/console/events`;
    return new FeedReader(await fetch(url, { headers, signal: leave.signal }), leave);
  }

  /** The next snapshot; undefined: the feed has ended. */
  async next(): Promise<Snapshot | undefined> {
    for (;;) {
      const end = this.#rest.indexOf('\n\n');
      if (end >= 0) {
        const lines = this.#rest.slice(0, end).split('\n');
        this.#rest = this.#rest.slice(end + 2);
        const data = lines.find((line) => line.startsWith('data: '));
        if (data !== undefined) return JSON.parse(data.slice('data: '.length)) as Snapshot;
        continue;
      }
      const read = await this.#reader?.read();
      if (read === undefined || read.done) return undefined;
      this.#rest += this.#decoder.decode(read.value, { stream: true });
    }
  }

  /** The next one that fits. Throws if the feed ends before. */
  async until(fits: (snapshot: Snapshot) => boolean): Promise<Snapshot> {
    for (;;) {
      const snapshot = await this.next();
      if (snapshot === undefined) throw new Error('the feed ended');
      if (fits(snapshot)) return snapshot;
    }
  }

  close(): void {
    this.#leave.abort();
  }
}

interface Line {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A metrics page, line by line. */
function linesOf(page: string): Line[] {
  return page
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name = '', labels = '', value = ''] = /^([^{ ]+)(?:\{(.*)\})? (.+)$/.exec(line) ?? [];
      const pairs = [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label = '', text = '']) => [label, text] as const);
      return { name, labels: Object.fromEntries(pairs), value: Number(value) };
    });
}

/**
 * Asserts that a snapshot equals the metrics page and /admission of the same moment, number by number. Memory is left
 * out: it is never the same twice.
 */
export function sameNumbers(t: Test, snapshot: Snapshot, page: string, admission: unknown): void {
  const lines = linesOf(page);
  const fitting = (name: string, labels: Readonly<Record<string, string>>): Line[] =>
    lines.filter(
      (line) => line.name === name && Object.entries(labels).every(([label, value]) => line.labels[label] === value),
    );
  const value = (name: string, labels: Readonly<Record<string, string>> = {}): number | null => {
    const found = fitting(name, labels);
    return found.length === 0 ? null : found.reduce((sum, line) => sum + line.value, 0);
  };
  const by = (name: string, label: string, labels: Readonly<Record<string, string>>): Record<string, number> =>
    Object.fromEntries(fitting(name, labels).map((line) => [line.labels[label] ?? '', line.value]));
  const histogram = (name: string, labels: Readonly<Record<string, string>>, shown: HistogramView): void => {
    const all = fitting(`${name}_bucket`, labels);
    const expected = [...shown.bounds.map(String), '+Inf'].map(
      (bound) => all.find((line) => line.labels['le'] === bound)?.value ?? 0,
    );
    t.strictSame(shown.counts, expected, `${name} ${JSON.stringify(labels)}`);
    t.equal(shown.bounds.length + 1, all.length === 0 ? shown.bounds.length + 1 : all.length, 'all its buckets');
    t.equal(shown.sum, value(`${name}_sum`, labels) ?? 0, 'sum');
  };
  for (const { model, queue, holders, engine, ...shown } of snapshot.models) {
    const about = { gen_ai_request_model: model };
    const own = { model };
    histogram('gen_ai_server_time_to_first_token_seconds', about, shown.firstToken);
    histogram('ra_sidecar_inter_token_seconds', own, shown.interToken);
    t.strictSame(shown.refusals, by('ra_sidecar_refusals_total', 'reason', own), 'refusals');
    t.strictSame(shown.cancels, by('ra_sidecar_cancels_total', 'phase', own), 'cancels');
    t.strictSame(shown.ended, by('gen_ai_server_request_duration_seconds_count', 'error_type', about), 'ended');
    const tokens = (type: string): number | null =>
      value('gen_ai_client_token_usage_sum', { ...about, gen_ai_token_type: type });
    t.strictSame(
      shown.tokens,
      {
        input: tokens('input') ?? 0,
        output: tokens('output') ?? 0,
        cached: value('ra_sidecar_cached_tokens_total', own),
        drafted: value('ra_sidecar_drafted_tokens_total', own),
        accepted: value('ra_sidecar_accepted_tokens_total', own),
      },
      'tokens',
    );
    t.equal(queue.seats, value('ra_sidecar_seats', own));
    t.equal(queue.busy, value('ra_sidecar_seats_busy', own));
    t.equal(
      holders.reduce((sum, { seats }) => sum + seats.length, 0),
      queue.busy,
      'each seat in use has its request',
    );
    t.equal(queue.waiting, value('ra_sidecar_waiting_requests', own));
    t.equal(queue.waitingBytes, value('ra_sidecar_waiting_bytes', own));
    for (const { account, waiting, running } of queue.accounts) {
      t.equal(waiting, value('ra_sidecar_account_waiting_requests', { ...own, account }), `${account} waiting`);
      t.equal(running, value('ra_sidecar_account_seats_busy', { ...own, account }), `${account} running`);
    }
    t.equal(value('ra_sidecar_engine_state', { ...own, state: engine.state }), 1, engine.state);
    t.equal(engine.restarts, value('ra_sidecar_engine_restarts_total', own));
    t.equal(engine.runningTokens, value('ra_sidecar_kv_tokens', { ...own, use: 'running' }));
    t.equal(engine.keptTokens, value('ra_sidecar_kv_tokens', { ...own, use: 'kept' }));
    t.equal(engine.capacityTokens, value('ra_sidecar_kv_capacity_tokens', own));
    t.strictSame(
      engine.cache,
      {
        bytes: value('ra_sidecar_prefix_cache_bytes', own),
        hits: value('ra_sidecar_prefix_cache_hits_total', own),
        restoredTokens: value('ra_sidecar_prefix_cache_restored_tokens_total', own),
        evictions: by('ra_sidecar_prefix_cache_evictions_total', 'reason', own),
      },
      'prefix cache',
    );
  }
  const errors: Record<string, number> = {};
  for (const line of fitting('http_server_request_duration_seconds_count', { http_request_method: 'POST' })) {
    const code = line.labels['error_type'];
    if (code !== undefined) errors[code] = (errors[code] ?? 0) + line.value;
  }
  t.strictSame(snapshot.errors, errors, 'errors');
  t.match(admission, { models: snapshot.models.map(({ model, queue }) => ({ model, ...still(queue) })) });
  const restarts = snapshot.promptHosts.reduce((sum, host) => sum + host.restarts, 0);
  t.equal(restarts, snapshot.promptHostRestarts);
  t.equal(snapshot.promptHostRestarts, value('ra_sidecar_prompt_host_restarts_total'));
  const { spool } = snapshot;
  t.equal(spool.healthy, value('ra_sidecar_spool_healthy') === null ? null : value('ra_sidecar_spool_healthy') === 1);
  for (const [shown, name] of [
    [spool.bytes, 'ra_sidecar_spool_bytes'],
    [spool.unsynced, 'ra_sidecar_spool_unsynced_records'],
    [spool.oldestUnsyncedSeconds, 'ra_sidecar_spool_oldest_unsynced_seconds'],
    [spool.errors, 'ra_sidecar_spool_errors_total'],
    [spool.lateCloses, 'ra_sidecar_spool_late_closes_total'],
    [spool.backlogBytes, 'ra_sidecar_usage_backlog_bytes'],
    [spool.oldestSeconds, 'ra_sidecar_usage_oldest_seconds'],
    [spool.delivered, 'ra_sidecar_usage_delivered_total'],
    [spool.deadLetters, 'ra_sidecar_usage_dead_letters_total'],
    [spool.retries, 'ra_sidecar_usage_delivery_retries_total'],
    [spool.lastSuccess, 'ra_sidecar_usage_delivery_last_success_timestamp_seconds'],
    [snapshot.streams, 'ra_sidecar_streams_running'],
    [snapshot.bufferedBytes, 'ra_sidecar_stream_buffered_bytes'],
  ] as const) {
    t.equal(shown, value(name), name);
  }
}

/**
 * A snapshot and the metrics page of one moment, once no request begins or ends. Engines report their memory only from
 * time to time, so it is the first snapshot that equals the page before and after it.
 */
export async function atRest(
  feed: FeedReader,
  read: () => Promise<string>,
): Promise<{ readonly snapshot: Snapshot; readonly page: string }> {
  const held = (page: string): string =>
    JSON.stringify(linesOf(page).filter(({ name }) => name === 'ra_sidecar_kv_tokens'));
  let before = await read();
  for (;;) {
    const since = Date.now();
    // A new viewer gets the last snapshot first, which may be older.
    const snapshot = await feed.until(({ at }) => at > since);
    const page = await read();
    if (held(page) === held(before)) return { snapshot, page };
    before = page;
  }
}

/**
 * The parts of a queue’s report that are constant while no request begins or ends: predictions and seat time follow the
 * clock.
 */
function still({ accounts, ...queue }: Snapshot['models'][number]['queue']): object {
  const lines = accounts.map(({ account, weight, waiting, running, holdMs, calibration }) => {
    return { account, weight, waiting, running, holdMs, calibration };
  });
  const { seats, busy, waiting, waitingBytes, paused, refused, released } = queue;
  return { seats, busy, waiting, waitingBytes, paused, refused, released, accounts: lines };
}
