import t from 'tap';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { Refused, Ticket } from '../../../sidecar/admission/types.js';
import { CLASS_WEIGHTS, type ServiceClass } from '../../../sidecar/domain/service-class.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import type { QueueReading } from '../../../sidecar/telemetry/queue-metrics.js';
import { FakeClock } from '../../support/fake-clock.js';
import { IDLE_QUEUE, sourcesOf } from '../../support/metric-sources.js';

/** The lines of the page that begin with `name`, without the common prefix. */
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
  kept: 2,
  waitingBy: { interactive: 1, standard: 1, batch: 0 },
  waitingBytes: 300,
  fairness: 0.75,
  overload: {
    standing: true,
    leftMs: 1500,
    patience: { 'first-token': { p10: 2000, p50: 8000, p90: null }, end: { p10: null, p50: null, p90: null } },
  },
  sessions: { turns: { kept: 5, cold: 1, first: 2 }, keeps: { continued: 5, expired: 1, taken: 0, lost: 0 } },
  lent: { seats: 2, waiting: 4, ends: { ended: 9, recalled: 3, queued: 1 }, seatMs: 5000, recalledMs: 1000 },
  accounts: [{ account: 'acme', waiting: 1, running: 2, seatMs: 1500 }],
  others: { waiting: 1, running: 1, seatMs: 250 },
};

t.test(
  'named accounts have their own series, the others one together; an account that is no longer named has none',
  async (t) => {
    const metrics = new Metrics(['m']);
    let reading = READING;
    let named = 0;
    const queue = (most: number): QueueReading => {
      named = most;
      return reading;
    };
    metrics.sources.set('m', sourcesOf({ queue }));
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
    reading = { ...READING, fairness: null, accounts: [], others: { waiting: 0, running: 0, seatMs: 1750 } };
    t.strictSame(await lines(metrics, 'account_seat_seconds'), [
      'account_seat_seconds{model="m",account="",rest="true"} 1.75',
    ]);
    t.strictSame(
      await lines(metrics, 'fairness_index'),
      [],
      'without accounts to compare there is no index, rather than 0',
    );
  },
);

t.test('sessions: turns by the seat that they got, and kept seats by how that ended', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.sources.set('m', sourcesOf({ queue: () => READING }));
  t.strictSame(await lines(metrics, 'session_turns'), [
    'session_turns{model="m",seat="kept"} 5',
    'session_turns{model="m",seat="cold"} 1',
    'session_turns{model="m",seat="first"} 2',
  ]);
  t.equal((await lines(metrics, 'session_keeps')).length, 4);
});

t.test('lent seats: how they ended, and what of their seat time was for nothing', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.sources.set('m', sourcesOf({ queue: () => READING }));
  t.strictSame(await lines(metrics, 'seats_lent'), ['seats_lent{model="m"} 2']);
  t.strictSame(await lines(metrics, 'lent_'), [
    ...['lent_waiting_requests{model="m"} 4', 'lent_seats_ended{model="m",end="ended"} 9'],
    ...['lent_seats_ended{model="m",end="recalled"} 3', 'lent_seats_ended{model="m",end="queued"} 1'],
    ...['lent_seat_seconds{model="m",attempt="kept"} 4', 'lent_seat_seconds{model="m",attempt="recalled"} 1'],
  ]);
});

t.test('overload: unknown patience has no series', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.sources.set('m', sourcesOf({ queue: () => READING }));
  t.strictSame(await lines(metrics, 'patience_seconds'), [
    'patience_seconds{model="m",awaits="first-token",quantile="0.1"} 2',
    'patience_seconds{model="m",awaits="first-token",quantile="0.5"} 8',
  ]);
  t.strictSame(await lines(metrics, 'left_seat_seconds'), ['left_seat_seconds{model="m"} 1.5']);
  t.strictSame(await lines(metrics, 'queue_standing'), ['queue_standing{model="m"} 1']);
  metrics.queues.refused('m', 'standing', 'reserved');
  metrics.queues.refused('m', 'standing', 'none');
  metrics.queues.refused('m', 'predicted', 'predicted');
  metrics.queues.refused('m', 'drain');
  t.ok((await lines(metrics, 'refusals_total')).includes('refusals_total{model="m",reason="drain"} 1'));
  t.strictSame(await lines(metrics, 'retry_times_total'), [
    'retry_times_total{model="m",time="predicted"} 1',
    'retry_times_total{model="m",time="reserved"} 1',
    'retry_times_total{model="m",time="none"} 1',
  ]);
});

t.test('times are seconds in buckets', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.queues.seated('m', { waitedMs: 0, class: 'standard' });
  metrics.queues.seated('m', { waitedMs: 300, class: 'standard' });
  const waits = await lines(metrics, 'queue_wait_seconds');
  t.ok(waits.includes('queue_wait_seconds_bucket{le="0.001",model="m",class="standard"} 1'));
  t.ok(waits.includes('queue_wait_seconds_bucket{le="0.5",model="m",class="standard"} 2'));
});

t.test('queues are read at each scrape', async (t) => {
  const metrics = new Metrics(['m']);
  let busy = 1;
  const queue = (): QueueReading => ({
    ...IDLE_QUEUE,
    busy,
    waitingBy: { interactive: 0, standard: 2, batch: 0 },
    waitingBytes: 300,
  });
  metrics.sources.set('m', sourcesOf({ queue }));
  t.strictSame(await lines(metrics, 'seats'), [
    'seats{model="m"} 8',
    'seats_busy{model="m"} 1',
    'seats_kept{model="m"} 0',
    'seats_lent{model="m"} 0',
  ]);
  busy = 5;
  t.strictSame(await lines(metrics, 'seats_busy'), ['seats_busy{model="m"} 5']);
  t.strictSame(await lines(metrics, 'waiting'), [
    'waiting_requests{model="m",class="interactive"} 0',
    'waiting_requests{model="m",class="standard"} 2',
    'waiting_requests{model="m",class="batch"} 0',
    'waiting_bytes{model="m"} 300',
  ]);
});

t.test('waits by class, and the errors of their predictions', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.queues.seated('m', { waitedMs: 0, predictedMs: 0, class: 'batch' });
  metrics.queues.seated('m', { waitedMs: 300, class: 'interactive' });
  metrics.queues.seated('m', { waitedMs: 300, predictedMs: 1000, class: 'interactive' });
  metrics.queues.seated('m', { waitedMs: 2000, predictedMs: 0, class: 'interactive' });
  t.ok(
    (await lines(metrics, 'queue_wait_seconds')).includes('queue_wait_seconds_count{model="m",class="interactive"} 3'),
  );
  const errors = await lines(metrics, 'queue_wait_error_seconds');
  t.ok(errors.includes('queue_wait_error_seconds_bucket{le="-0.5",model="m"} 1'));
  t.ok(errors.includes('queue_wait_error_seconds_bucket{le="1",model="m"} 1'));
  t.ok(errors.includes('queue_wait_error_seconds_count{model="m"} 2'));
});

t.test('refusals of every reason exist from the start', async (t) => {
  const metrics = new Metrics(['m']);
  t.equal((await lines(metrics, 'refusals_total{model="m"')).length, 14);
  metrics.queues.refused('m', 'predicted');
  t.ok((await lines(metrics, 'refusals')).includes('refusals_total{model="m",reason="predicted"} 1'));
});

t.test('waiting requests by class, as they arrive, are seated, put back, cancelled and refused', async (t) => {
  const metrics = new Metrics(['m', 'unwatched']);
  const clock = new FakeClock();
  const config = { maxWaitMs: 1000, waitingPerSeat: 8, waitingBytes: 1000 };
  const queue = new SeatQueue({ clock, random: () => 0, config, seats: 1 });
  metrics.sources.set('m', sourcesOf({ queue: (named) => queue.report(named) }));
  const shows = async (what: string, interactive: number, standard: number, batch: number): Promise<void> => {
    const page = await lines(metrics, 'waiting_requests{model="m"');
    const line = (name: ServiceClass, count: number): string => `waiting_requests{model="m",class="${name}"} ${count}`;
    t.strictSame(page, [line('interactive', interactive), line('standard', standard), line('batch', batch)], what);
  };
  const enter = (name: ServiceClass, account: string): Ticket => {
    const ticket = queue.enter({ account, weight: CLASS_WEIGHTS[name], bytes: 10, seatsWanted: 1 });
    return waiting(ticket);
  };
  const work = { promptTokens: 1, maxTokens: 1 };

  t.equal((await lines(metrics, 'waiting_requests{model="unwatched"')).length, 3, 'there from the start');
  await shows('no request arrived', 0, 0, 0);
  const first = enter('standard', 'acme');
  await shows('it waits while its checks run', 0, 1, 0);
  first.ready(work);
  const outcome = await first.outcome;
  await shows('seated', 0, 0, 0);
  // One account may have keys of several classes.
  const second = enter('interactive', 'acme');
  enter('batch', 'acme');
  enter('batch', 'birch');
  await shows('each under its own class', 1, 0, 2);
  second.cancel();
  await shows('left', 0, 0, 2);
  queue.pause();
  if (outcome.kind !== 'seated') throw new Error(outcome.kind);
  void outcome.lease.giveBack();
  await shows('its engine was lost: it waits again', 0, 1, 2);
  clock.advance(1001);
  await shows('no request waits longer than the longest wait', 0, 0, 0);
});

function waiting(ticket: Ticket | Refused): Ticket {
  if ('kind' in ticket) throw new Error(ticket.reason);
  return ticket;
}
