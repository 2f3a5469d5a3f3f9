import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { folder, openWorld } from '../../support/delivering-harness.js';
import { NatsPeer } from '../../support/nats-peer.js';
import { eventually } from '../../support/processes.js';
import { deadPort } from '../../support/usage-sink.js';

const SECRET = 'bus-secret-canary';

const AWAY: readonly [bus: string, environment: (port: number) => Record<string, string>][] = [
  ['HTTP', (port) => ({ RA_DELIVERY_URL: `http://127.0.0.1:${port}/usage` })],
  ['NATS', (port) => ({ RA_DELIVERY_NATS_SERVERS: `["nats://127.0.0.1:${port}"]` })],
  ['Kafka', (port) => ({ RA_DELIVERY_KAFKA_BROKERS: `["127.0.0.1:${port}"]` })],
];
for (const [bus, environment] of AWAY) {
  t.test(
    `${bus}: a sink that is away shows in the metrics, and at the backlog’s bound no more work is taken`,
    async (t) => {
      const port = await deadPort();
      const small = { RA_USAGE_SEGMENT_BYTES: '1024', RA_USAGE_MAX_BACKLOG_BYTES: '4096', RA_USAGE_PROBE_MS: '10' };
      const world = await openWorld(t, folder(t), { ...small, ...environment(port), RA_DELIVERY_STOP_MS: '50' });
      await world.bill(...Array.from({ length: 30 }, (_, i) => `n${i}`));
      await world.log.seen('usage spool unhealthy');
      t.match(await world.log.seen('usage delivery waits'), { reason: 'ECONNREFUSED' });
      t.strictSame(world.spool.health, { ok: false, why: 'backlog' });
      t.ok((await world.metric('usage_backlog_bytes')) > 4096);
      t.ok((await world.metric('usage_delivery_retries_total')) > 0);
      t.ok((await world.metric('usage_oldest_seconds')) > 0);
      t.equal(await world.metric('usage_delivered_total'), 0);
      t.equal(await world.metric('usage_dead_letters_total'), 0);
    },
  );
}

t.test('a stream that comes back gets all that waited, and a stop leaves no connection', async (t) => {
  const port = await deadPort();
  const ids = Array.from({ length: 30 }, (_, i) => `n${i}`);
  const world = await openWorld(t, folder(t), {
    RA_DELIVERY_NATS_SERVERS: `["nats://127.0.0.1:${port}"]`,
    RA_USAGE_SEGMENT_BYTES: '1024',
    RA_USAGE_MAX_BACKLOG_BYTES: '4096',
    RA_USAGE_PROBE_MS: '10',
  });
  await world.bill(...ids);
  await world.log.seen('usage spool unhealthy');
  const server = await NatsPeer.start(t, port);
  await world.log.seen('usage spool healthy');
  await eventually('nothing waits', async () => (await world.metric('usage_backlog_bytes')) === 0);
  await world.stop();
  t.strictSame(
    server.messages.map(({ headers }) => headers['Nats-Msg-Id']),
    ids,
  );
  t.equal(await world.metric('usage_delivered_total'), 30);
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
    const failure = await openWorld(t, dir, { ...bus, ...more }).then(
      () => new Error('it started'),
      (error: unknown) => error as Error,
    );
    t.match(failure, { message });
    t.notOk(failure.message.includes(SECRET));
  }
  const kafka = {
    RA_DELIVERY_KAFKA_BROKERS: '["127.0.0.1:9"]',
    RA_DELIVERY_KAFKA_AUTH: 'plain',
    RA_DELIVERY_KAFKA_SECRET_FILE: join(dir, 'ca.pem'),
  };
  await t.rejects(openWorld(t, dir, kafka), {
    message: /^delivery\.kafka\.secretFile: must hold one line, user:password/,
  });
});
