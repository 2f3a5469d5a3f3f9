import t from 'tap';
import type { EngineReading } from '../../../sidecar/telemetry/engine-metrics.js';
import type { QueueReading } from '../../../sidecar/telemetry/queue-metrics.js';
import { VERSION } from '../../../sidecar/lib/version.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

/** The lines of the page that begin with `name`, without the common prefix. */
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
  t.match(text, /^# HELP ra_sidecar_seats \S/m);
  t.match(text, `ra_sidecar_build_info{version="${VERSION}"} 1\n`);
});

t.test('refusals, cancels and restarts exist from the start, at zero', async (t) => {
  const metrics = new Metrics(['m']);
  t.equal((await lines(metrics, 'refusals_total{model="m"')).length, 13);
  t.equal((await lines(metrics, 'cancels_total{model="m"')).length, 3);
  t.strictSame(await lines(metrics, 'engine_restarts_total'), ['engine_restarts_total{model="m"} 0']);
  metrics.refused('m', 'wait');
  metrics.cancelled('m', 'prefilling');
  metrics.engineRestarted('m', 0);
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
  const waits = await lines(metrics, 'queue_wait_seconds');
  t.ok(waits.includes('queue_wait_seconds_bucket{le="0.001",model="m",class="standard"} 1'));
  t.ok(waits.includes('queue_wait_seconds_bucket{le="0.5",model="m",class="standard"} 2'));
});

t.test('queues are read at each scrape', async (t) => {
  const metrics = new Metrics(['m']);
  let busy = 1;
  const others = { accounts: 0, waiting: 0, running: 0, seatMs: 0 };
  const read = (): QueueReading => ({
    seats: 8,
    busy,
    waitingBy: { interactive: 0, standard: 2, batch: 0 },
    waitingBytes: 300,
    fairness: null,
    overload: {
      standing: false,
      leftMs: 0,
      patience: { 'first-token': { p10: null, p50: null, p90: null }, end: { p10: null, p50: null, p90: null } },
    },
    accounts: [],
    others,
  });
  metrics.watchQueue('m', read);
  t.strictSame(await lines(metrics, 'seats'), ['seats{model="m"} 8', 'seats_busy{model="m"} 1']);
  busy = 5;
  t.strictSame(await lines(metrics, 'seats_busy'), ['seats_busy{model="m"} 5']);
  t.strictSame(await lines(metrics, 'waiting'), [
    'waiting_requests{model="m",class="interactive"} 0',
    'waiting_requests{model="m",class="standard"} 2',
    'waiting_requests{model="m",class="batch"} 0',
    'waiting_bytes{model="m"} 300',
  ]);
});

t.test('an engine has one state, and a number of tokens', async (t) => {
  const metrics = new Metrics(['m']);
  let reading: EngineReading = { state: 'unloaded', running: 0, kept: 0, capacity: 0 };
  metrics.watchEngine('m', () => reading);
  const page = (unloaded: number, ready: number): string[] => [
    `engine_state{model="m",state="unloaded"} ${unloaded}`,
    'engine_state{model="m",state="cold"} 0',
    `engine_state{model="m",state="ready"} ${ready}`,
    'engine_state{model="m",state="lost"} 0',
  ];
  t.strictSame(await lines(metrics, 'engine_state'), page(1, 0));
  reading = { state: 'ready', running: 70, kept: 20, capacity: 4096 };
  t.strictSame(await lines(metrics, 'engine_state'), page(0, 1));
  t.strictSame(await lines(metrics, 'kv_'), [
    'kv_tokens{model="m",use="running"} 70',
    'kv_tokens{model="m",use="kept"} 20',
    'kv_capacity_tokens{model="m"} 4096',
  ]);
});
