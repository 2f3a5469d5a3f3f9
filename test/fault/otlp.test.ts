/** An OTLP endpoint that is down, hangs, drips or refuses: requests do not notice, memory is bounded, the log is not flooded. */
import t, { type Test } from 'tap';
import { chatBody, InProcess } from '../support/in-process.js';
import { OtlpReceiver } from '../support/otlp-receiver.js';
import { eventually } from '../support/processes.js';
import { deadPort } from '../support/usage-sink.js';

const MODEL = 'm';
const CHATS = '/v1/chat/completions';

function start(t: Test, otlp: object): Promise<InProcess> {
  return InProcess.start(t, { models: [{ id: MODEL, kind: 'chat' }], config: { telemetry: { otlp } } });
}

/** So many requests, one after another; all are answered. Returns the longest of them, ms. */
async function served(t: Test, sidecar: InProcess, count: number): Promise<number> {
  let longest = 0;
  for (let i = 0; i < count; i += 1) {
    const from = performance.now();
    const { status } = await sidecar.post(CHATS, chatBody(MODEL, 'echo', { max_tokens: 2 }));
    if (status !== 200) t.fail(`status ${status}`);
    longest = Math.max(longest, performance.now() - from);
  }
  return longest;
}

const DROPPED = 'ra_sidecar_otlp_traces_dropped_total';
const EXPORTS = 'ra_sidecar_otlp_exports_total';

t.test('nobody listens', async (t) => {
  const endpoint = `http://127.0.0.1:${await deadPort()}`;
  const limits = { batchMs: 1, batchRequests: 4, maxQueued: 8, timeoutMs: 300, metricsIntervalMs: 200 };
  const sidecar = await start(t, { endpoint, ...limits });
  t.ok((await served(t, sidecar, 40)) < 2000);
  await sidecar.seen('otlp export fails', ({ otlp }) => otlp === 'traces');
  const line = await sidecar.seen('otlp export fails', ({ otlp }) => otlp === 'metrics');
  t.match(line, { reason: 'ECONNREFUSED' });
  const failed = `${EXPORTS}{signal="metrics",outcome="failed"}`;
  await eventually('three exports of the metrics failed', async () => (await sidecar.metric(failed)) >= 3);
  t.ok((await sidecar.metric(`${DROPPED}{reason="export_failed"}`)) >= 4);
  t.equal(sidecar.lines.filter(({ event }) => event === 'otlp export fails').length, 2, 'said once for each');
});

t.test('a stop waits no longer for an endpoint than it may', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  receiver.answer = () => undefined;
  const sidecar = await start(t, { endpoint: receiver.endpoint, timeoutMs: 300_000, stopMs: 100 });
  await served(t, sidecar, 1);
  const from = performance.now();
  await sidecar.app.drain();
  t.ok(performance.now() - from < 3000);
  t.ok(sidecar.lines.some(({ event }) => event === 'otlp export not finished in time'));
  t.equal(receiver.requests.length, 2, 'it was sent both');
});

t.test('the endpoint takes connections and says nothing; then it is well again', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  receiver.answer = () => undefined;
  const limits = { batchMs: 1, batchRequests: 2, maxQueued: 4, timeoutMs: 1500, metrics: false };
  const sidecar = await start(t, { endpoint: receiver.endpoint, ...limits });
  t.ok((await served(t, sidecar, 20)) < 1000);
  t.equal(receiver.requests.length, 1, 'one export at a time');
  const full = await sidecar.metric(`${DROPPED}{reason="queue_full"}`);
  t.ok(full >= 20 - 2 - 4 && full < 20, `${full} of 20 were dropped`);
  t.match(await sidecar.seen('otlp export fails'), { reason: 'timeout' });
  receiver.answer = (response) => void response.writeHead(200).end();
  await sidecar.seen('otlp export works again');
  await served(t, sidecar, 1);
  await receiver.until('a trace', () => (receiver.spans.length >= 14 ? true : undefined));
});

t.test('the endpoint refuses: what it says is not repeated', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  receiver.answer = (response) => void response.writeHead(401, { 'x-why': 'words' }).end('words of the endpoint');
  const sidecar = await start(t, { endpoint: receiver.endpoint, batchMs: 1, metrics: false });
  await served(t, sidecar, 1);
  t.match(await sidecar.seen('otlp export fails'), { reason: 'status 401', otlp: 'traces' });
  t.equal(receiver.requests.length, 1, 'such an answer is not asked for again');
  t.notMatch(JSON.stringify(sidecar.lines), /words/);
});

t.test('a stop sends what waits', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  const rare = { batchMs: 3_600_000, metricsIntervalMs: 3_600_000 };
  const sidecar = await start(t, { endpoint: `${receiver.endpoint}/`, ...rare });
  await served(t, sidecar, 3);
  t.equal(receiver.requests.length, 0);
  await sidecar.app.drain();
  t.equal(receiver.spans.filter(({ kind }) => kind === 2).length, 3);
  const requests = receiver.metrics.find(({ name }) => name === 'gen_ai.server.request.duration');
  t.equal(requests?.points[0]?.count, 3);
  t.strictSame(receiver.requests.map(({ path }) => path).sort(), ['/v1/metrics', '/v1/traces']);
});

t.test('headers come from a file, as it is at the time', async (t) => {
  const { writeFileSync } = await import('node:fs');
  const headersFile = `${t.testdir()}/headers`;
  const receiver = await OtlpReceiver.start(t);
  const settings = { endpoint: receiver.endpoint, headersFile, batchMs: 1, metrics: false };
  await t.rejects(start(t, settings), { message: /telemetry\.otlp\.headersFile/ }, 'a start without it fails');
  writeFileSync(headersFile, 'authorization: Bearer first\n');
  const sidecar = await start(t, settings);
  for (const [i, token] of ['first', 'second', 'second'].entries()) {
    // The last one cannot be used, and what was before it stays in force.
    writeFileSync(headersFile, i < 2 ? `Authorization: Bearer ${token}` : 'no header');
    await served(t, sidecar, 1);
    await receiver.until('an export', () => receiver.requests[i]);
    t.equal(receiver.requests[i]?.headers.authorization, `Bearer ${token}`);
    t.equal(receiver.requests[i]?.headers['content-type'], 'application/x-protobuf');
  }
  t.notMatch(JSON.stringify(sidecar.lines), /Bearer|first|second/);
});
