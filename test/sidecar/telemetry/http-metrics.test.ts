import t from 'tap';
import type { AnsweredRequest } from '../../../sidecar/telemetry/http-metrics.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

const ANSWERED: AnsweredRequest = {
  method: 'POST',
  scheme: 'http',
  route: '/v1/chat/completions',
  status: 200,
  durationMs: 1500,
  outcome: 'complete',
};

/** Metrics, and their samples that begin with `name`. */
function harness(): { http: Metrics['http']; samples: (name: string) => Promise<string[]> } {
  const metrics = new Metrics([]);
  return {
    http: metrics.http,
    samples: async (name) => (await metrics.render()).text.split('\n').filter((line) => line.startsWith(name)),
  };
}

t.test('requests by method, route, status and error, as OpenTelemetry defines it', async (t) => {
  const { http, samples } = harness();
  for (const ended of [
    ANSWERED,
    { ...ANSWERED, durationMs: 20 },
    { ...ANSWERED, status: 429, code: 'capacity_exceeded' },
    { ...ANSWERED, status: 200, code: 'bad_gateway' },
    { ...ANSWERED, status: 499, outcome: 'gone' },
    { ...ANSWERED, method: 'GET', route: undefined, status: 404, code: 'not_found' },
    { ...ANSWERED, method: 'BREW', status: 405, code: 'bad_request' },
    { ...ANSWERED, scheme: 'https' },
  ] as const) {
    http.began(ended);
    http.ended(ended);
  }
  const post = 'http_request_method="POST",url_scheme="http",http_route="/v1/chat/completions"';
  t.strictSame(await samples('http_server_request_duration_seconds_count'), [
    `http_server_request_duration_seconds_count{${post},http_response_status_code="200"} 2`,
    `http_server_request_duration_seconds_count{${post},http_response_status_code="429",error_type="capacity_exceeded"} 1`,
    `http_server_request_duration_seconds_count{${post},http_response_status_code="200",error_type="bad_gateway"} 1`,
    `http_server_request_duration_seconds_count{${post},http_response_status_code="499",error_type="request_cancelled"} 1`,
    'http_server_request_duration_seconds_count{http_request_method="GET",url_scheme="http",http_response_status_code="404",error_type="not_found"} 1',
    `http_server_request_duration_seconds_count{${post.replace('POST', '_OTHER')},http_response_status_code="405",error_type="bad_request"} 1`,
    `http_server_request_duration_seconds_count{${post.replace('"http"', '"https"')},http_response_status_code="200"} 1`,
  ]);
  const sums = await samples('http_server_request_duration_seconds_sum');
  t.strictSame(
    sums.map((line) => Number(line.slice(line.lastIndexOf(' ')))),
    [1.52, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5],
  );
});

t.test('open requests and streams', async (t) => {
  const { http, samples } = harness();
  http.began(ANSWERED);
  http.began(ANSWERED);
  http.began({ method: 'BREW', scheme: 'http' });
  http.began({ method: 'POST', scheme: 'https' });
  http.ended(ANSWERED);
  t.strictSame(await samples('http_server_active_requests'), [
    'http_server_active_requests{http_request_method="POST",url_scheme="http"} 1',
    'http_server_active_requests{http_request_method="_OTHER",url_scheme="http"} 1',
    'http_server_active_requests{http_request_method="POST",url_scheme="https"} 1',
  ]);
  http.streamOpened();
  http.streamOpened();
  http.streamClosed();
  t.strictSame(await samples('ra_sidecar_streams_running'), ['ra_sidecar_streams_running 1']);
  t.strictSame(await samples('ra_sidecar_stream_buffered'), ['ra_sidecar_stream_buffered_bytes 0']);
  http.bufferedBytes = () => 77;
  t.strictSame(await samples('ra_sidecar_stream_buffered'), ['ra_sidecar_stream_buffered_bytes 77']);
  http.readerCut('total');
  t.strictSame(await samples('ra_sidecar_readers_cut'), [
    'ra_sidecar_readers_cut_total{reason="stream"} 0',
    'ra_sidecar_readers_cut_total{reason="total"} 1',
  ]);
});
