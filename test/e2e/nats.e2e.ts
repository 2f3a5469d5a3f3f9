import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { credsAuthenticator, nkeyAuthenticator, nkeys, type NodeConnectionOptions } from '@nats-io/transport-node';
import { DiscardPolicy } from '@nats-io/jetstream';
import t, { type Test } from 'tap';
import { usageEvent, type CloseRecord, type UsageEvent, type SinkAnswer } from '../../sidecar/usage/delivery/sink.js';
import { accountToken } from '../../sidecar/usage/delivery/nats-sink.js';
import { eventually } from '../support/processes.js';
import { sinkContract, type SinkPeer } from '../support/sink-contract.js';
import { linkFaults, natsSink } from '../support/sink-peers.js';
import { TcpLink } from '../support/tcp-link.js';
import { usageRecord } from '../support/usage-records.js';
import { BilledLoad, sameAsSpool } from './billed-load.js';
import { makeAccounts } from './nats-jwt.js';
import { NatsServer } from './nats-server.js';
import { stopProcess } from './stopped.js';

const MAX_EVENT = 4096;
const NEVER = new AbortController().signal;
/** In the test under load. */
const KILLS = 3;

async function peer(t: Test): Promise<SinkPeer> {
  const server = await NatsServer.start(t);
  await server.makeStream({ max_msg_size: MAX_EVENT });
  const link = await TcpLink.start(t, () => server.port);
  const way = linkFaults(link);
  let killed = false;
  let stopped = false;
  return {
    faults: {
      ...way.faults,
      'it is killed': async () => {
        await server.kill();
        killed = true;
      },
      'it hangs': async () => {
        await stopProcess(server.pid);
        stopped = true;
      },
    },
    heal: async () => {
      await way.heal();
      if (killed) await server.begin();
      if (stopped) process.kill(server.pid, 'SIGCONT');
      killed = stopped = false;
    },
    stored: async () => (await server.stored()).map(({ body }) => body),
    tooLong: MAX_EVENT,
    sink: () => natsSink(link.port, 300),
  };
}

sinkContract(t, 'nats-server', peer);

t.test(`a server that is killed ${KILLS} times under load has each record once in the end`, async (t) => {
  const server = await NatsServer.start(t);
  await server.makeStream();
  const load = await BilledLoad.start(t, { nats: { servers: [`nats://127.0.0.1:${server.port}`] } });
  const { sidecar } = load;
  for (let kill = 1; kill <= KILLS; kill += 1) {
    await load.delivers(20);
    await server.kill();
    const seen = sidecar.lines.length;
    const waits = (): boolean => sidecar.lines.slice(seen).some(({ event }) => event === 'usage delivery waits');
    await sidecar.until(waits, 'delivery waits');
    t.ok((await sidecar.metric('ra_sidecar_usage_oldest_seconds')) > 0, 'and the metrics show for how long');
    await server.begin();
    await sidecar.logged('usage delivery resumed', kill);
  }
  const answers = await load.end();
  const stored = await server.stored();
  const events = stored.map(({ body }) => JSON.parse(body) as UsageEvent);
  t.comment(`${stored.length} messages`);
  t.equal(new Set(stored.map(({ id }) => id)).size, stored.length, 'no id is in the stream twice');
  t.strictSame(
    stored.map(({ id, subject }) => [id, subject]),
    events.map(({ id, subject }) => [id, `usage.${accountToken(subject)}`]),
  );
  sameAsSpool(t, events, await load.exported(), answers);
});

const EVENT = usageEvent(usageRecord('a', 'close') as CloseRecord, '/s');

async function answerOf(
  port: number,
  environment: Readonly<Record<string, string>> = {},
  event = EVENT,
): Promise<SinkAnswer> {
  const sink = natsSink(port, 2000, environment);
  try {
    return await sink.deliver([event], NEVER);
  } finally {
    await sink.close();
  }
}

t.test('errors that an operator can fix are retried; others are dead letters', async (t) => {
  const server = await NatsServer.start(t, 'max_payload: 16384');
  const other = { ...EVENT, id: 'b' };
  t.match(await answerOf(server.port), { kind: 'later', why: 'no stream' });
  await server.makeStream({ max_msgs: 1, discard: DiscardPolicy.New });
  t.match(await answerOf(server.port, { RA_DELIVERY_NATS_STREAM: 'OTHER' }), { kind: 'later', why: 'JetStream 10060' });
  t.match(await answerOf(server.port), { kind: 'accepted' });
  t.match(await answerOf(server.port, {}, other), { kind: 'later', why: 'JetStream 10077' }, 'it is full');
  await server.updateStream({ max_msgs: 2 });
  t.match(await answerOf(server.port, {}, other), { kind: 'accepted' });
  const long = { ...EVENT, id: 'c', data: { ...EVENT.data, requestId: 'x'.repeat(20_000) } };
  t.match(await answerOf(server.port, {}, long), { kind: 'refused', status: 10_054 });
  t.strictSame(
    (await server.stored()).map(({ id }) => id),
    ['a', 'b'],
  );
});

t.test(
  'without permission to connect or publish records wait; with it they are delivered, for each kind of credentials',
  async (t) => {
    const user = nkeys.createUser();
    const seed = user.getSeed();
    const accounts = makeAccounts();
    const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
    const credsFile = join(t.testdir({}), 'user.creds');
    writeFileSync(credsFile, accounts.creds);
    const ways: readonly [auth: string, secret: string, config: string, access: NodeConnectionOptions][] = [
      ['password', 'edge:p:w', 'authorization { user: edge, password: "p:w" }', { user: 'edge', pass: 'p:w' }],
      ['token', 'a-token', 'authorization { token: "a-token" }', { token: 'a-token' }],
      [
        'nkey',
        text(seed),
        `authorization { users: [{ nkey: ${user.getPublicKey()} }] }`,
        { authenticator: nkeyAuthenticator(seed) },
      ],
      [
        'creds',
        accounts.creds,
        accounts.config,
        { authenticator: credsAuthenticator(new TextEncoder().encode(accounts.creds)) },
      ],
    ];
    for (const [auth, secret, config, access] of ways) {
      const server = await NatsServer.start(t, config, access);
      await server.makeStream();
      const file = join(server.dir, 'secret');
      writeFileSync(file, secret);
      t.match(await answerOf(server.port), { kind: 'later', why: 'AuthorizationError' }, `${auth}: without`);
      const environment = { RA_DELIVERY_NATS_AUTH: auth, RA_DELIVERY_NATS_SECRET_FILE: file };
      t.match(await answerOf(server.port, environment), { kind: 'accepted' }, auth);
    }
    const server = await NatsServer.start(
      t,
      'authorization { users: [{ user: edge, password: pw, permissions: { publish: ["$JS.>"] } }, { user: me, password: me }] }',
      { user: 'me', pass: 'me' },
    );
    await server.makeStream();
    const file = join(server.dir, 'secret');
    writeFileSync(file, 'edge:pw');
    const environment = { RA_DELIVERY_NATS_AUTH: 'password', RA_DELIVERY_NATS_SECRET_FILE: file };
    t.match(await answerOf(server.port, environment), { kind: 'later', why: 'PermissionViolationError' });
  },
);

t.test('TLS: only the configured authority is trusted', async (t) => {
  const dir = t.testdir({});
  const [cert, key, strange] = [join(dir, 'cert.pem'), join(dir, 'key.pem'), join(dir, 'strange.pem')];
  for (const out of [strange, cert]) {
    const how = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=nats'];
    const names = ['-addext', 'subjectAltName=DNS:localhost'];
    execFileSync('openssl', [...how, ...names, '-keyout', key, '-out', out], { stdio: 'ignore' });
  }
  const server = await NatsServer.start(t, `tls { cert_file: "${cert}", key_file: "${key}" }`, {
    tls: { ca: readFileSync(cert, 'utf8') },
    servers: 'localhost',
  });
  await server.makeStream();
  // The client looks for a name in the certificate, also if it connects to an address.
  const servers = { RA_DELIVERY_NATS_SERVERS: `["nats://localhost:${server.port}"]` };
  const environment = { ...servers, RA_DELIVERY_NATS_TLS: 'true', RA_DELIVERY_NATS_CA_FILE: cert };
  t.match(await answerOf(server.port, environment), { kind: 'accepted' });
  for (const wrong of [
    servers,
    { ...servers, RA_DELIVERY_NATS_TLS: 'true' },
    { ...environment, RA_DELIVERY_NATS_CA_FILE: strange },
  ]) {
    t.match(await answerOf(server.port, wrong), { kind: 'later', why: /SELF_SIGNED|UNABLE_TO|CERT|DEPTH/ });
  }
  await eventually('the message is delivered', async () => (await server.stored()).length === 1);
});
