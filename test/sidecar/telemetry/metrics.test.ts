import t from 'tap';
import type { QueueReading } from '../../../sidecar/telemetry/queue-metrics.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

/** The lines of the page that begin with `name`, without the prefix that all of ours share. */
async function lines(metrics: Metrics, name: string): Promise<string[]> {
  const { text } = await metrics.render();
  return text
    .split('\n')
    .filter((line) => line.startsWith(`ra_sidecar_${name}`))
    .map((line) => line.slice('ra_sidecar_'.length));
}

t.test('the page is Prometheus text, with the process’s own metrics', async (t) => {
  const { contentType, text } = await new Metrics([]).render();
  t.match(contentType, /^text\/plain; version=0\.0\.4/);
  t.match(text, /^process_resident_memory_bytes \d+/m);
  t.match(text, /^# HELP ra_sidecar_requests_total /m);
});

t.test('requests by route, status and code', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.answered('chat', 200, 1500);
  metrics.answered('chat', 200, 20);
  metrics.answered('chat', 429, 1, 'capacity_exceeded');
  t.strictSame(await lines(metrics, 'requests_total'), [
    'requests_total{route="chat",status="200",code="none"} 2',
    'requests_total{route="chat",status="429",code="capacity_exceeded"} 1',
  ]);
  t.strictSame(await lines(metrics, 'request_duration_seconds_sum'), [
    'request_duration_seconds_sum{route="chat"} 1.521',
  ]);
});

t.test('refusals, cancels and restarts are there from the start, at zero', async (t) => {
  const metrics = new Metrics(['m']);
  t.equal((await lines(metrics, 'refusals_total{model="m"')).length, 8);
  t.equal((await lines(metrics, 'cancels_total{model="m"')).length, 3);
  t.strictSame(await lines(metrics, 'engine_restarts_total'), ['engine_restarts_total{model="m"} 0']);
  metrics.refused('m', 'wait');
  metrics.cancelled('m', 'prefilling');
  metrics.engineRestarted('m');
  metrics.promptHostRestarted();
  metrics.spool.recorded('close');
  const { text } = await metrics.render();
  for (const line of [
    'refusals_total{model="m",reason="wait"} 1',
    'refusals_total{model="m",reason="full"} 0',
    'cancels_total{model="m",phase="prefilling"} 1',
    'engine_restarts_total{model="m"} 1',
    'prompt_host_restarts_total 1',
    'usage_records_total{kind="close"} 1',
  ]) {
    t.ok(text.includes(`ra_sidecar_${line}\n`), line);
  }
});

t.test('times are seconds in buckets', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.seated('m', { waitedMs: 0, class: 'standard' });
  metrics.seated('m', { waitedMs: 300, class: 'standard' });
  metrics.firstToken('m', 40);
  const waits = await lines(metrics, 'queue_wait_seconds');
  t.ok(waits.includes('queue_wait_seconds_bucket{le="0.001",model="m",class="standard"} 1'));
  t.ok(waits.includes('queue_wait_seconds_bucket{le="0.5",model="m",class="standard"} 2'));
  t.ok((await lines(metrics, 'ttft_seconds_sum')).includes('ttft_seconds_sum{model="m"} 0.04'));
});

t.test('tokens by kind; a model that is not configured has no label of its own', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.tokens('m', { prompt: 10, cached: 4, completion: 3 });
  metrics.tokens('whatever-a-caller-wrote', { prompt: 1, cached: 0, completion: 0 });
  const found = await lines(metrics, 'tokens_total');
  t.ok(found.includes('tokens_total{model="m",kind="prompt"} 10'));
  t.ok(found.includes('tokens_total{model="m",kind="cached"} 4'));
  t.ok(found.includes('tokens_total{model="m",kind="completion"} 3'));
  t.ok(found.includes('tokens_total{model="other",kind="prompt"} 1'));
  t.notMatch(found.join(), 'whatever');
});

t.test('queues are read at each scrape', async (t) => {
  const metrics = new Metrics(['m']);
  let busy = 1;
  const others = { tenants: 0, waiting: 0, running: 0, seatMs: 0 };
  const read = (): QueueReading => ({
    seats: 8,
    busy,
    waiting: 2,
    waitingBytes: 300,
    fairness: null,
    tenants: [],
    others,
  });
  metrics.watchQueue('m', read);
  t.strictSame(await lines(metrics, 'seats'), ['seats{model="m"} 8', 'seats_busy{model="m"} 1']);
  busy = 5;
  t.strictSame(await lines(metrics, 'seats_busy'), ['seats_busy{model="m"} 5']);
  t.strictSame(await lines(metrics, 'waiting'), ['waiting_requests{model="m"} 2', 'waiting_bytes{model="m"} 300']);
});

t.test('an engine is in one state', async (t) => {
  const metrics = new Metrics(['m']);
  let state: 'unloaded' | 'ready' = 'unloaded';
  metrics.watchEngine('m', () => state);
  const page = (unloaded: number, ready: number): string[] => [
    `engine_state{model="m",state="unloaded"} ${unloaded}`,
    'engine_state{model="m",state="cold"} 0',
    `engine_state{model="m",state="ready"} ${ready}`,
    'engine_state{model="m",state="lost"} 0',
  ];
  t.strictSame(await lines(metrics, 'engine_state'), page(1, 0));
  state = 'ready';
  t.strictSame(await lines(metrics, 'engine_state'), page(0, 1));
});

t.test('streams come and go', async (t) => {
  const metrics = new Metrics([]);
  metrics.streamOpened();
  metrics.streamOpened();
  metrics.streamClosed();
  t.strictSame(await lines(metrics, 'streams_running'), ['streams_running 1']);
});
