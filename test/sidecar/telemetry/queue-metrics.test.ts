import t from 'tap';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import type { QueueReading } from '../../../sidecar/telemetry/queue-metrics.js';

/** The lines of the page that begin with `name`, without the prefix that all of ours share. */
async function lines(metrics: Metrics, name: string): Promise<string[]> {
  const { text } = await metrics.render();
  return text
    .split('\n')
    .filter((line) => line.startsWith(`ra_sidecar_${name}`))
    .map((line) => line.slice('ra_sidecar_'.length));
}

const READING: QueueReading = {
  seats: 8,
  busy: 3,
  waiting: 2,
  waitingBytes: 300,
  fairness: 0.75,
  tenants: [{ tenant: 'acme', waiting: 1, running: 2, seatMs: 1500 }],
  others: { waiting: 1, running: 1, seatMs: 250 },
};

t.test(
  'accounts that are named have their own lines, the others one together; who is named no more is gone',
  async (t) => {
    const metrics = new Metrics(['m']);
    let reading = READING;
    let named = 0;
    metrics.watchQueue('m', (most) => {
      named = most;
      return reading;
    });
    t.strictSame(await lines(metrics, 'account_seat_seconds'), [
      'account_seat_seconds{model="m",account="acme",rest="false"} 1.5',
      'account_seat_seconds{model="m",account="",rest="true"} 0.25',
    ]);
    t.equal(named, 20);
    t.ok(
      (await lines(metrics, 'account_waiting')).includes(
        'account_waiting_requests{model="m",account="acme",rest="false"} 1',
      ),
    );
    t.ok(
      (await lines(metrics, 'account_seats')).includes('account_seats_busy{model="m",account="acme",rest="false"} 2'),
    );
    t.strictSame(await lines(metrics, 'fairness_index'), ['fairness_index{model="m"} 0.75']);
    reading = { ...READING, fairness: null, tenants: [], others: { waiting: 0, running: 0, seatMs: 1750 } };
    t.strictSame(await lines(metrics, 'account_seat_seconds'), [
      'account_seat_seconds{model="m",account="",rest="true"} 1.75',
    ]);
    t.strictSame(await lines(metrics, 'fairness_index'), [], 'nothing to compare is not zero');
  },
);

t.test('waits by class, and how wrong their predictions were', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.seated('m', { waitedMs: 0, predictedMs: 0, class: 'batch' });
  metrics.seated('m', { waitedMs: 300, class: 'interactive' });
  metrics.seated('m', { waitedMs: 300, predictedMs: 1000, class: 'interactive' });
  metrics.seated('m', { waitedMs: 2000, predictedMs: 0, class: 'interactive' });
  t.ok(
    (await lines(metrics, 'queue_wait_seconds')).includes('queue_wait_seconds_count{model="m",class="interactive"} 3'),
  );
  const errors = await lines(metrics, 'queue_wait_error_seconds');
  t.ok(errors.includes('queue_wait_error_seconds_bucket{le="-0.5",model="m"} 1'));
  t.ok(errors.includes('queue_wait_error_seconds_bucket{le="1",model="m"} 1'));
  t.ok(errors.includes('queue_wait_error_seconds_count{model="m"} 2'));
});

t.test('refusals of every reason are there from the start', async (t) => {
  const metrics = new Metrics(['m']);
  t.equal((await lines(metrics, 'refusals_total{model="m"')).length, 8);
  metrics.refused('m', 'predicted');
  t.ok((await lines(metrics, 'refusals')).includes('refusals_total{model="m",reason="predicted"} 1'));
});
