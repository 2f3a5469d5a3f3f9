/**
 * An OTLP endpoint that is down, hangs or refuses: requests are not affected, memory is bounded, the log stays short.
 */
import { writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import t, { type Test } from 'tap';
import { chatBody, InProcess, type Options } from '../support/in-process.js';
import { OtlpReceiver } from '../support/otlp-receiver.js';
import { eventually } from '../support/processes.js';
import { shareLanes } from '../support/shared-lanes.js';
import { deadPort } from '../support/usage-sink.js';

shareLanes(t);

const MODEL = 'm';
const CHATS = '/v1/chat/completions';

function start(t: Test, otlp: object, traceLimits: Options['traceLimits'] = { batchMs: 1 }): Promise<InProcess> {
  return InProcess.start(t, { models: [{ id: MODEL, kind: 'chat' }], config: { telemetry: { otlp } }, traceLimits });
}

/** Runs so many requests, one after another; all are answered. */
async function served(t: Test, sidecar: InProcess, count: number): Promise<void> {
  for (let i = 0; i < count; i += 1) {
    const { status } = await sidecar.post(CHATS, chatBody(MODEL, 'echo', { max_tokens: 2 }));
    if (status !== 200) t.fail(`status ${status}`);
  }
}

const DROPPED = 'ra_sidecar_otlp_traces_dropped_total';
const EXPORTS = 'ra_sidecar_otlp_exports_total';

t.test('the endpoint refuses connections', async (t) => {
  const endpoint = `http://127.0.0.1:${await deadPort()}`;
  const limits = { batchMs: 1, batchRequests: 4, maxQueued: 8 };
  const sidecar = await start(t, { endpoint, timeoutMs: 300, metricsIntervalMs: 200 }, limits);
  await served(t, sidecar, 20);
  await sidecar.seen('otlp export fails', ({ otlp }) => otlp === 'traces');
  const line = await sidecar.seen('otlp export fails', ({ otlp }) => otlp === 'metrics');
  t.match(line, { reason: 'ECONNREFUSED' });
  const failed = `${EXPORTS}{signal="metrics",outcome="failed"}`;
  await eventually('three exports of the metrics failed', async () => (await sidecar.metric(failed)) >= 3);
  t.ok((await sidecar.metric(`${DROPPED}{reason="export_failed"}`)) >= 4);
  t.equal(sidecar.lines.filter(({ event }) => event === 'otlp export fails').length, 2, 'logged once for each');
});

t.test('the endpoint accepts connections and does not answer', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  const unanswered: ServerResponse[] = [];
  receiver.answer = (response) => void unanswered.push(response);
  const settings = { endpoint: receiver.endpoint, timeoutMs: 300_000, stopMs: 100, metrics: false };
  const sidecar = await start(t, settings, { batchMs: 1, batchRequests: 2, maxQueued: 4 });
  await served(t, sidecar, 20);
  // The first export may have had one request or two.
  const full = await sidecar.metric(`${DROPPED}{reason="queue_full"}`);
  t.ok(full >= 20 - 2 - 4 && full <= 20 - 1 - 4, `${full} of 20 were dropped`);
  await eventually('the first export arrived', () => receiver.requests.length > 0);
  t.equal(receiver.requests.length, 1, 'one export at a time, and that goes on');

  await sidecar.app.drain();
  t.ok(
    sidecar.lines.some(({ event }) => event === 'otlp export not finished in time'),
    'a stop does not wait for it',
  );
  // What is left would be retried as long as this process lives, which is a minute.
  receiver.answer = (response) => void response.writeHead(200).end();
  for (const response of unanswered) response.writeHead(200).end();
  await receiver.until(
    'what was kept',
    () => receiver.spans.filter(({ kind }) => kind === 2).length === 20 - full || undefined,
  );
});

t.test('the endpoint refuses, then accepts; headers are read from a file for each export', async (t) => {
  const headersFile = `${t.testdir()}/headers`;
  const receiver = await OtlpReceiver.start(t);
  const settings = { endpoint: receiver.endpoint, headersFile, metrics: false };
  await t.rejects(start(t, settings), { message: /telemetry\.otlp\.headersFile/ }, 'a start without the file fails');
  writeFileSync(headersFile, 'authorization: Bearer first\n');
  const sidecar = await start(t, settings);
  receiver.answer = (response) => void response.writeHead(401, { 'x-why': 'words' }).end('text of the endpoint');
  await served(t, sidecar, 1);
  t.match(await sidecar.seen('otlp export fails'), { reason: 'status 401', otlp: 'traces' });
  t.equal(receiver.requests.length, 1, 'after such an answer the export is not repeated');

  receiver.answer = (response) => void response.writeHead(200).end();
  for (const [i, token] of ['second', 'second'].entries()) {
    // The last file is invalid, so the previous headers stay in force.
    writeFileSync(headersFile, i === 0 ? `Authorization: Bearer ${token}` : 'no header');
    await served(t, sidecar, 1);
    const { headers } = await receiver.until('an export', () => receiver.requests[1 + i]);
    t.equal(headers.authorization, `Bearer ${token}`);
    t.equal(headers['content-type'], 'application/x-protobuf');
  }
  await sidecar.seen('otlp export works again');
  t.equal(receiver.requests[0]?.headers.authorization, 'Bearer first');
  t.notMatch(JSON.stringify(sidecar.lines), /words|Bearer|first|second/);
});

t.test('a stop sends what waits', async (t) => {
  const receiver = await OtlpReceiver.start(t);
  const settings = { endpoint: `${receiver.endpoint}/`, metricsIntervalMs: 3_600_000, stopMs: 60_000 };
  const sidecar = await start(t, settings, { batchMs: 3_600_000 });
  await served(t, sidecar, 3);
  t.equal(receiver.requests.length, 0);
  await sidecar.app.drain();
  t.equal(receiver.spans.filter(({ kind }) => kind === 2).length, 3);
  const requests = receiver.metrics.find(({ name }) => name === 'gen_ai.server.request.duration');
  t.equal(requests?.points[0]?.count, 3);
  t.strictSame(receiver.requests.map(({ path }) => path).sort(), ['/v1/metrics', '/v1/traces']);
});
