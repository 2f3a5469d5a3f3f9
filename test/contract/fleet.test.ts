/** One of several sidecars, as raw HTTP: load reports in responses, and /metrics on the public listener. */
import t from 'tap';
import { Metrics } from '../../sidecar/telemetry/metrics.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { holdError } from '../support/error-answer.js';
import { chatBody, decisionBody, InProcess } from '../support/in-process.js';
import type { RawResponse } from '../support/raw-http.js';

const ENDPOINT_NAMES = new Metrics([]).definitions
  .map(({ name }) => name)
  .filter((name) => name.startsWith('ra_sidecar_endpoint_'));

const CHAT = '/v1/chat/completions';
const FIELD = 'endpoint-load-metrics';
const ASK = 'endpoint-load-metrics-format';
const SECRET = 'a-secret-of-forty-characters-for-scrapers';
const SCRAPER = { Authorization: `Bearer ${SECRET}` };
const DENIED = { status: 401, type: 'authentication_error', code: 'invalid_api_key', retry: false, param: null };
const TEXT_NAMES = [
  ...['application_utilization', 'eps', 'rps_fractional', 'named_metrics.kv_cache_utilization'],
  ...['named_metrics.num_requests_running', 'named_metrics.num_requests_waiting'],
];

const models = [
  { id: 'chat-of-acme', kind: 'chat', seats: 3, contextPerSeat: 1024 },
  { id: 'decide', kind: 'decision', seats: 1, contextPerSeat: 2048 },
] as const;
const scrapers = { has: (secret: string) => secret === SECRET };

interface Report {
  readonly application_utilization: number;
  readonly eps: number;
  readonly rps_fractional: number;
  readonly named_metrics: Readonly<Record<string, number>>;
}

/** As a proxy reads it: one number per name. */
function textOf(response: RawResponse): Record<string, number> {
  const value = response.field(FIELD) ?? '';
  if (!/^TEXT \S+=\S+(, \S+=\S+)*$/.test(value)) throw new Error(`not a text report: ${value}`);
  const pairs = value.slice('TEXT '.length).split(', ');
  return Object.fromEntries(pairs.map((pair) => pair.split('=')).map(([name = '', number]) => [name, Number(number)]));
}

function jsonOf(response: RawResponse): Report {
  const value = response.field(FIELD) ?? '';
  if (!value.startsWith('JSON ')) throw new Error(`not a JSON report: ${value}`);
  return JSON.parse(value.slice('JSON '.length)) as Report;
}

t.test('a load report on every response, and metrics for endpoint pickers', async (t) => {
  const config = { fleet: { pickerMetrics: true, loadReport: 'json' }, queue: PATIENT_QUEUE };
  const sidecar = await InProcess.start(t, { models, scrapers, config });
  const act = (name: Parameters<typeof chatBody>[1], more?: object): object =>
    chatBody('chat-of-acme', name, { ...more });

  await t.test('whole and streamed, answered and refused', async (t) => {
    const auth = { Authorization: 'Bearer good' };
    const answers = {
      'whole chat': await sidecar.post(CHAT, act('echo')),
      'streamed chat': await sidecar.post(CHAT, act('echo', { stream: true })),
      decisions: await sidecar.post('/v1/decisions', decisionBody('decide')),
      models: await sidecar.ask('GET', '/v1/models', auth),
      HEAD: await sidecar.ask('HEAD', '/v1/models', auth),
      readiness: await sidecar.ask('GET', '/readyz', {}),
      'no key': await sidecar.post(CHAT, act('echo'), { Authorization: 'Bearer bad' }),
      'no such path': await sidecar.ask('GET', '/nothing', {}),
      'a job that fails': await sidecar.post(CHAT, act('fail')),
      preflight: await sidecar.ask('OPTIONS', CHAT, {}),
    };
    for (const [name, answer] of Object.entries(answers)) {
      const report = jsonOf(answer);
      t.strictSame(Object.keys(report), ['application_utilization', 'eps', 'rps_fractional', 'named_metrics'], name);
      t.ok(report.application_utilization > 0, `${name}: never 0, since Envoy would then keep the previous value`);
      t.notMatch(answer.field('access-control-expose-headers'), FIELD, `${name}: not exposed to web pages`);
      t.notMatch(answer.raw, /\r\n\r\n[^]*endpoint-load-metrics/, `${name}: only in the head`);
    }
    t.match(
      answers['streamed chat'].raw,
      /\r\nendpoint-load-metrics: JSON \{"application_utilization":0\.[0-9]+,"eps":0,"rps_fractional":0\.[0-9],"named_metrics":\{"kv_cache_utilization":[0-9.]+,"num_requests_running":1,"num_requests_waiting":0\}\}\r\n/,
    );
    t.match(
      (await sidecar.ask('GET', '/healthz', { [ASK]: 'text' })).field(FIELD),
      /^TEXT /,
      'the other format if it is requested',
    );
  });

  await t.test('the numbers are current and include all models', async (t) => {
    const held = [
      await sidecar.begin(CHAT, act('hold')),
      await sidecar.begin(CHAT, act('hold')),
      await sidecar.begin(CHAT, act('hold')),
      await sidecar.begin(CHAT, act('hold')),
    ];
    await sidecar.until('ra_sidecar_endpoint_running_requests', 3);
    await sidecar.until('ra_sidecar_endpoint_waiting_requests', 1);
    const busy = textOf(await sidecar.ask('GET', '/healthz', { [ASK]: 'text' }));
    t.strictSame(Object.keys(busy), TEXT_NAMES);
    t.equal(busy['named_metrics.num_requests_running'], 3);
    t.equal(busy['named_metrics.num_requests_waiting'], 1);
    t.equal(busy['application_utilization'], 1, 'four requests on four seats of two models');

    const page = await sidecar.ask('GET', '/metrics', {});
    t.equal(page.status, 200);
    t.match(page.field('content-type'), /^text\/plain; version=0\.0\.4/);
    const samples = page.body.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    t.strictSame(
      samples.filter((line) => !line.startsWith('ra_sidecar_endpoint_kv_usage_ratio ')),
      [
        'ra_sidecar_endpoint_waiting_requests 1',
        'ra_sidecar_endpoint_running_requests 3',
        'ra_sidecar_endpoint_seat_usage_ratio 0.75',
        'ra_sidecar_endpoint_cache_info{block_size="64",num_gpu_blocks="80"} 1',
      ],
    );
    t.strictSame(
      [...page.body.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => `${name} ${type}`),
      ENDPOINT_NAMES.map((name) => `${name} gauge`),
      'each metric once, and no others',
    );
    t.notMatch(page.body, /acme|decide/, 'no account or key');

    for (const connection of held) connection.close();
    await sidecar.until('ra_sidecar_endpoint_running_requests', 0);
    await sidecar.until('ra_sidecar_endpoint_waiting_requests', 0);
    const idle = textOf(await sidecar.ask('GET', '/healthz', { [ASK]: 'text' }));
    t.equal(idle['application_utilization'], 0.25, 'one running request: the scrape is none');
  });

  await t.test(
    'a request with the scraper’s secret sees all metrics; one with another secret is refused',
    async (t) => {
      const all = await sidecar.ask('GET', '/metrics', SCRAPER);
      t.equal(all.status, 200);
      t.match(all.body, /^ra_sidecar_seats\{model="chat-of-acme"\} 3$/m);
      for (const name of ENDPOINT_NAMES) t.ok(all.body.includes(`\n${name}`), name);
      for (const wrong of ['Bearer wrong', 'Bearer good', 'Basic a', ''])
        holdError(t, `"${wrong}"`, await sidecar.ask('GET', '/metrics', { Authorization: wrong }), DENIED);
    },
  );
});

t.test('reports only where they are requested, and metrics only for scrapers', async (t) => {
  const sidecar = await InProcess.start(t, { models, scrapers, config: { fleet: { loadReport: 'asked' } } });
  const report = async (headers: Readonly<Record<string, string>>): Promise<string | undefined> =>
    (await sidecar.post(CHAT, chatBody('chat-of-acme', 'echo'), headers)).field(FIELD);
  t.equal(await report({}), undefined);
  t.equal(await report({ [ASK]: 'bin' }), undefined, 'an unknown format');
  t.match(await report({ [ASK]: 'json' }), /^JSON \{/);
  t.match(await report({ [ASK]: 'Text' }), /^TEXT application_utilization=/);

  holdError(t, 'no secret', await sidecar.ask('GET', '/metrics', {}), DENIED);
  t.equal((await sidecar.ask('GET', '/metrics', SCRAPER)).status, 200);
});
