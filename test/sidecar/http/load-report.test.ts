import t from 'tap';
import type { RequestHead } from '../../../sidecar/http/exchange.js';
import { LoadReport, Rate, type LoadReportOptions } from '../../../sidecar/http/load-report.js';
import { FakeClock } from '../../support/fake-clock.js';

const LOAD = { seats: 8, running: 3, waiting: 0, kvUsage: 0.123456, seatUsage: 0.375, capacityTokens: 100 };

function head(method: string, path: string, format?: string): RequestHead {
  const header = (name: string): string | undefined => (name === 'endpoint-load-metrics-format' ? format : undefined);
  return { method, path, query: '', requestId: 'a', scheme: 'http', address: '', route: undefined, header };
}

function make(when: LoadReportOptions['when'], load = LOAD): { report: LoadReport; clock: FakeClock } {
  const clock = new FakeClock();
  return { clock, report: new LoadReport({ clock, when, counted: new Set(['/chat']), load: () => load }) };
}

t.test('both formats, to the byte', async (t) => {
  const { report } = make('json');
  t.strictSame(report.field(head('POST', '/chat'), 200), [
    'endpoint-load-metrics',
    'JSON {"application_utilization":0.375,"eps":0,"rps_fractional":0.1,"named_metrics":{"kv_cache_utilization":0.1235,"num_requests_running":3,"num_requests_waiting":0}}',
  ]);
  t.strictSame(report.field(head('POST', '/chat', 'TEXT'), 503), [
    'endpoint-load-metrics',
    'TEXT application_utilization=0.375, eps=0.1, rps_fractional=0.2, named_metrics.kv_cache_utilization=0.1235, named_metrics.num_requests_running=3, named_metrics.num_requests_waiting=0',
  ]);
});

t.test('when: for all requests, or for those that ask for it', async (t) => {
  const formats = (when: LoadReportOptions['when']): (string | undefined)[] =>
    [undefined, 'text', 'JSON', 'bin', ''].map((format) =>
      make(when)
        .report.field(head('GET', '/x', format), 200)?.[1]
        .slice(0, 4),
    );
  t.strictSame(formats('asked'), [undefined, 'TEXT', 'JSON', undefined, undefined]);
  t.strictSame(formats('json'), ['JSON', 'TEXT', 'JSON', 'JSON', 'JSON']);
  t.strictSame(formats('text'), ['TEXT', 'TEXT', 'JSON', 'TEXT', 'TEXT']);
});

t.test('requests for a model count, also those without a report; probes and preflight requests do not', async (t) => {
  const { report, clock } = make('asked');
  const rates = (): unknown => {
    const [, value = ''] = report.field(head('GET', '/healthz', 'json'), 200) ?? [];
    const { eps, rps_fractional } = JSON.parse(value.slice('JSON '.length)) as Record<string, number>;
    return { eps, rps_fractional };
  };
  t.strictSame(rates(), { eps: 0, rps_fractional: 0 });
  for (const status of [200, 200, 429, 401, 499]) report.field(head('POST', '/chat'), status);
  for (const status of [500, 502, 503]) report.field(head('POST', '/chat'), status);
  report.field(head('OPTIONS', '/chat'), 204);
  report.field(head('POST', '/other'), 500);
  t.strictSame(rates(), { eps: 0.3, rps_fractional: 0.8 });
  clock.advance(11_000);
  t.strictSame(rates(), { eps: 0, rps_fractional: 0 });
});

t.test('utilization is of seats, includes waiting requests, and is never 0', async (t) => {
  const used = (load: typeof LOAD): string | undefined =>
    /application_utilization=([^,]*)/.exec(make('text', load).report.field(head('GET', '/'), 200)?.[1] ?? '')?.[1];
  t.equal(used({ ...LOAD, running: 8, waiting: 12 }), '2.5');
  t.equal(used({ ...LOAD, running: 0 }), '0.125', 'idle: only the request being answered');
  t.equal(used({ ...LOAD, running: 0, seats: 0 }), '1');
});

t.test('counts the last ten seconds', async (t) => {
  const clock = new FakeClock();
  clock.advance(123_456);
  const rate = new Rate(clock);
  t.equal(rate.perSecond, 0);
  for (let i = 0; i < 30; i++) rate.add();
  t.equal(rate.perSecond, 3);
  clock.advance(5000);
  for (let i = 0; i < 10; i++) rate.add();
  t.equal(rate.perSecond, 4);
  clock.advance(5000);
  t.equal(rate.perSecond, 1, 'the first thirty are ten seconds old');
  clock.advance(4543);
  t.equal(rate.perSecond, 1);
  clock.advance(1);
  t.equal(rate.perSecond, 0);
});

t.test('after a long silence nothing is left, and counting continues', async (t) => {
  const clock = new FakeClock();
  const rate = new Rate(clock);
  for (let second = 0; second < 25; second++) {
    rate.add();
    clock.advance(1000);
  }
  t.equal(rate.perSecond, 0.9, 'one a second, without the part that has just begun');
  clock.advance(3_600_000);
  t.equal(rate.perSecond, 0);
  rate.add();
  t.equal(rate.perSecond, 0.1);
});
