/**
 * The caller disconnects while the closing record of its complete answer is written: log, metrics, cancels and usage
 * agree.
 */
import { join } from 'node:path';
import t from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import { Spool } from '../../sidecar/usage/spool.js';
import { verify } from '../../sidecar/usage/reader.js';
import { HeldDisk } from '../support/held-disk.js';
import { chatBody, decisionBody, InProcess } from '../support/in-process.js';
import { eventually } from '../support/processes.js';
import { OPTIONS } from '../support/spool-harness.js';
import { readAll } from '../support/usage-records.js';

const MODELS = [
  { id: 'c', kind: 'chat' },
  { id: 's', kind: 'chat' },
  { id: 'd', kind: 'decision' },
] as const;

const DURATIONS = 'gen_ai_server_request_duration_seconds_count';

const REQUESTS = [
  {
    name: 'a whole chat reply',
    path: '/v1/chat/completions',
    body: chatBody('c', 'echo', { max_tokens: 3 }),
    model: 'c',
    operation: 'chat',
    phase: 'decoding',
    streamed: false,
  },
  {
    name: 'a streamed chat reply',
    path: '/v1/chat/completions',
    body: chatBody('s', 'echo', { max_tokens: 3, stream: true }),
    model: 's',
    operation: 'chat',
    phase: 'decoding',
    streamed: true,
  },
  {
    name: 'a decision',
    path: '/v1/decisions',
    body: decisionBody('d'),
    model: 'd',
    operation: 'decisions',
    phase: 'prefilling',
    streamed: false,
  },
] as const;

t.test('a caller disconnects while the record of its complete answer is written', async (t) => {
  const dir = join(t.testdir(), 'usage');
  // The real spool on a disk that delays each closing record until the test releases it.
  const held = new HeldDisk();
  const options = { ...OPTIONS, closeWaitMs: 60_000, maxUnsyncedMs: 60_000 };
  const opened = await Spool.open(dir, options, { clock: systemClock, disk: held.disk });
  if (opened.kind !== 'open') throw new Error('held');
  const { spool } = opened;
  const sidecar = await InProcess.start(t, { models: MODELS, takesRecords: spool });

  for (const { name, path, body, model, operation, phase, streamed } of REQUESTS) {
    await t.test(name, async (t) => {
      const labels = `gen_ai_operation_name="${operation}",gen_ai_provider_name="ra-sidecar",gen_ai_request_model="${model}",gen_ai_response_model="${model}"`;
      const cancelled = `${DURATIONS}{${labels},error_type="request_cancelled"}`;
      const done = `${DURATIONS}{${labels}}`;
      const cancels = `ra_sidecar_cancels_total{model="${model}",phase="${phase}"}`;

      const connection = await sidecar.begin(path, body, { 'x-request-id': `left-${model}`, 'idempotency-key': model });
      await held.holding();
      connection.close();
      const wire = streamed ? '200' : '499';
      await sidecar.until(
        `http_server_request_duration_seconds_count{http_request_method="POST",url_scheme="http",http_route="${path}",http_response_status_code="${wire}",error_type="request_cancelled"}`,
        1,
      );
      held.goOn();
      t.match(await sidecar.seen('request', ({ requestId }) => requestId === `left-${model}`), {
        status: 499,
        code: 'request_cancelled',
      });
      // Revised while it was written, it is written a second time.
      await held.holding();
      held.goOn();
      // The idempotency key is free once the record is durable.
      await eventually('its record is durable', () => spool.reading.unsynced === 0);
      t.equal(await sidecar.metric(cancelled), 1);
      t.equal(await sidecar.metric(done), 0);
      t.equal(await sidecar.metric(cancels), 1);

      // A caller that stays, with the same idempotency key: the cancelled request did not consume it.
      const stays = await sidecar.begin(path, body, { 'x-request-id': `stayed-${model}`, 'idempotency-key': model });
      await held.holding();
      held.goOn();
      t.equal((await stays.response()).status, 200);
      t.match(await sidecar.seen('request', ({ requestId }) => requestId === `stayed-${model}`), {
        status: 200,
        code: undefined,
      });
      t.equal(await sidecar.metric(cancelled), 1);
      t.equal(await sidecar.metric(done), 1);
      t.equal(await sidecar.metric(cancels), 1);

      const closes = (await readAll(dir, { until: spool.position })).records.filter(
        (record) => record.kind === 'close' && record.model === model,
      );
      t.match(closes, [
        { requestId: `left-${model}`, outcome: 'cancelled' },
        { requestId: `stayed-${model}`, outcome: 'done' },
      ]);
      const [left, stayed] = closes;
      t.equal(left?.price?.picodollars, stayed?.price?.picodollars, 'both are billed');
      t.equal(left?.completionTokens, stayed?.completionTokens);
    });
  }

  t.equal(await spool.close(), 0);
  t.strictSame((await verify(dir, false)).findings, []);
});
