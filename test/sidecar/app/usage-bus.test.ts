import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { folder, openHarness } from '../../support/delivering-harness.js';
import { NatsPeer } from '../../support/nats-peer.js';
import { eventually } from '../../support/processes.js';
import { deadPort } from '../../support/usage-sink.js';

const SECRET = 'bus-secret-canary';

const AWAY: readonly [bus: string, environment: (port: number) => Record<string, string>][] = [
  ['HTTP', (port) => ({ RA_DELIVERY_URL: `http://127.0.0.1:${port}/usage` })],
  ['NATS', (port) => ({ RA_DELIVERY_NATS_SERVERS: `["nats://127.0.0.1:${port}"]` })],
];
for (const [bus, environment] of AWAY)
  t.test(
    `${bus}: an unavailable sink is shown in the metrics, and at the backlog’s bound no new requests are accepted`,
    async (t) => {
      const port = await deadPort();
      const small = { RA_USAGE_SEGMENT_BYTES: '1024', RA_USAGE_MAX_BACKLOG_BYTES: '4096' };
      const harness = await openHarness(
        t,
        folder(t),
        { ...small, ...environment(port), RA_DELIVERY_STOP_MS: '50' },
        { probeMs: 10 },
      );
      await harness.bill(...Array.from({ length: 30 }, (_, i) => `n${i}`));
      await harness.log.seen('usage spool unhealthy');
      t.match(await harness.log.seen('usage delivery waits'), { reason: 'ECONNREFUSED' });
      t.strictSame(harness.spool.health, { ok: false, why: 'backlog' });
      t.ok((await harness.metric('usage_backlog_bytes')) > 4096);
      t.ok((await harness.metric('usage_delivery_retries_total')) > 0);
      t.ok((await harness.metric('usage_oldest_seconds')) > 0);
      t.equal(await harness.metric('usage_delivered_total'), 0);
      t.equal(await harness.metric('usage_dead_letters_total'), 0);
    },
  );

t.test('a stream that is available again gets all that waited, and a stop leaves no connection', async (t) => {
  const port = await deadPort();
  const ids = Array.from({ length: 30 }, (_, i) => `n${i}`);
  const harness = await openHarness(
    t,
    folder(t),
    {
      RA_DELIVERY_NATS_SERVERS: `["nats://127.0.0.1:${port}"]`,
      RA_USAGE_SEGMENT_BYTES: '1024',
      RA_USAGE_MAX_BACKLOG_BYTES: '4096',
    },
    { probeMs: 10 },
  );
  await harness.bill(...ids);
  await harness.log.seen('usage spool unhealthy');
  const server = await NatsPeer.start(t, port);
  await harness.log.seen('usage spool healthy');
  await eventually('nothing waits', async () => (await harness.metric('usage_backlog_bytes')) === 0);
  await harness.stop();
  t.strictSame(
    server.messages.map(({ headers }) => headers['Nats-Msg-Id']),
    ids,
  );
  t.equal(await harness.metric('usage_delivered_total'), 30);
  await eventually('the connection is closed', () => server.connections === 0);
});

t.test('a bus’s files are read at the start', async (t) => {
  const dir = folder(t);
  const bus = { RA_DELIVERY_NATS_SERVERS: '["nats://127.0.0.1:9"]', RA_DELIVERY_NATS_TLS: 'true' };
  writeFileSync(join(dir, 'ca.pem'), SECRET);
  const cases: readonly [Record<string, string>, RegExp][] = [
    [
      { RA_DELIVERY_NATS_AUTH: 'token', RA_DELIVERY_NATS_SECRET_FILE: join(dir, 'none') },
      /^delivery\.nats\.secretFile: does not exist/,
    ],
    [{ RA_DELIVERY_NATS_CA_FILE: join(dir, 'ca.pem') }, /^delivery\.nats\.caFile: must be PEM/],
  ];
  for (const [more, message] of cases) {
    const failure = await openHarness(t, dir, { ...bus, ...more }).then(
      () => new Error('it started'),
      (error: unknown) => error as Error,
    );
    t.match(failure, { message });
    t.notOk(failure.message.includes(SECRET));
  }
  const login = { RA_DELIVERY_NATS_AUTH: 'password', RA_DELIVERY_NATS_SECRET_FILE: join(dir, 'ca.pem') };
  await t.rejects(openHarness(t, dir, { ...bus, ...login }), {
    message: /^delivery\.nats\.secretFile: must contain one line, user:password/,
  });
});
