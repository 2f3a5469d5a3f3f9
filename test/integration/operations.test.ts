import t from 'tap';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';

const DURATION = '[0-9]+(?:\\.[0-9]{1,3})?';
const TIMING = new RegExp(`^authorize;dur=${DURATION}, ra-queue;dur=${DURATION}, ra-admit;dur=${DURATION}$`);

t.test('in service', async (t) => {
  const sidecar = await Sidecar.start(t, { stub: true, seats: 2, contextPerSeat: 16_000 });
  const get = (port: number, path: string): Promise<Response> => fetch(`http://127.0.0.1:${port}${path}`);
  const messages = [{ role: 'user', content: 'Hello' }];
  const question = { id: 'a', type: 'yes_no', question: 'Is it?' };

  await t.test('both listeners report that it is alive and ready', async (t) => {
    for (const port of [sidecar.port, sidecar.operatorsPort]) {
      t.same(await (await get(port, '/healthz')).json(), { status: 'ok' });
      const health = await get(port, '/health');
      t.equal(health.status, 200);
      t.equal(await health.text(), '{"status":"ok"}');
      t.equal((await get(port, '/readyz')).status, 200);
    }
    const state = { status: 'ready', parts: { models: 'ready', usage: 'ready' } };
    t.strictSame(await (await get(sidecar.port, '/readyz')).json(), state);
    t.strictSame(await (await get(sidecar.operatorsPort, '/readyz')).json(), { ...state, reasons: [] });
  });

  await t.test('every 200 of a model has its times before the model, and never the first token', async (t) => {
    const responses = await Promise.all([
      sidecar.chat({ messages, max_tokens: 4 }),
      sidecar.chat({ messages, max_tokens: 4, stream: true }),
      sidecar.post('/decisions', { model: DECIDE, input: 'the', questions: [question] }),
      sidecar.post('/systemone', {
        model: DECIDE,
        state: 'the',
        questions: { a: { type: 'noul', instructions: 'a' } },
      }),
    ]);
    for (const response of responses) {
      t.equal(response.status, 200);
      t.match(response.headers.get('server-timing'), TIMING);
      // Decisions have a limit by default, so their answers say what is left of it.
      const limited = ['limit', 'remaining', 'reset'].map((what) => `x-ratelimit-${what}-requests`);
      const exposed = response.url.endsWith('/chat/completions') ? [] : limited;
      t.equal(
        response.headers.get('access-control-expose-headers'),
        ['x-request-id', 'Server-Timing', ...exposed].join(', '),
      );
      t.match(response.headers.get('x-request-id'), /^[0-9a-f-]{36}$/);
      await response.text();
    }
  });

  await t.test('only the operators’ listener has the metrics, and they count what happened', async (t) => {
    t.equal((await get(sidecar.port, '/metrics')).status, 404);
    t.equal((await get(sidecar.operatorsPort, '/v1/models')).status, 404);
    const page = await get(sidecar.operatorsPort, '/metrics');
    t.match(page.headers.get('content-type'), /^text\/plain/);
    const text = await page.text();
    t.notOk(text.includes(sidecar.key));

    const tokens = (): Promise<number> =>
      sidecar.metric('gen_ai_client_token_usage_sum', { gen_ai_request_model: CHAT, gen_ai_token_type: 'output' });
    const answered = (): Promise<number> =>
      sidecar.metric('http_server_request_duration_seconds_count', {
        http_route: '/v1/chat/completions',
        http_response_status_code: '200',
      });
    const before = [await tokens(), await answered()];
    await (await sidecar.chat({ messages, max_tokens: 5, temperature: 0 })).text();
    t.same([await tokens(), await answered()], [before[0]! + 5, before[1]! + 1]);
    t.equal(await sidecar.metric('ra_sidecar_seats', { model: CHAT }), 2);
    for (const gauge of ['seats_busy', 'waiting_requests', 'waiting_bytes', 'streams_running']) {
      t.equal(await sidecar.metric(`ra_sidecar_${gauge}`), 0, gauge);
    }
  });
});
