import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { nkeys } from '@nats-io/transport-node';
import t, { type Test } from 'tap';
import { usageEvent, type CloseRecord, type SinkAnswer } from '../../../../sidecar/usage/delivery/sink.js';
import { NatsPeer } from '../../../support/nats-peer.js';
import { natsSink } from '../../../support/sink-peers.js';
import { deadPort } from '../../../support/usage-sink.js';
import { usageRecord } from '../../../support/usage-records.js';

const SECRET = 'bus-secret-canary';
const EVENT = usageEvent(usageRecord('a', 'close', { account: 'a.b' }) as CloseRecord, '/edge-1');
const NEVER = new AbortController().signal;
/** Each answer here comes at once: the time in which even a busy machine has it, ms. */
const ANSWER_MS = 10_000;

/** The outcome of one event at a server on this port, with this configuration. */
async function answerOf(
  port: number,
  environment: Readonly<Record<string, string>> = {},
  event = EVENT,
): Promise<SinkAnswer> {
  const sink = natsSink(port, ANSWER_MS, environment);
  try {
    return await sink.deliver([event], NEVER);
  } finally {
    await sink.close();
  }
}

/** A file with this text. */
function file(t: Test, text: string): string {
  const dir = mkdtempSync(join(tmpdir(), 'ra-nats-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, 'secret'), text);
  return join(dir, 'secret');
}

t.test(
  'an event is one message: its id for the stream, its account in the subject, itself as the payload',
  async (t) => {
    const server = await NatsPeer.start(t);
    t.strictSame(await answerOf(server.port), { kind: 'accepted' });
    t.strictSame(await answerOf(server.port), { kind: 'accepted' }, 'a duplicate counts as stored');
    t.equal(server.messages.length, 1);
    const [message] = server.messages;
    t.equal(message?.subject, 'usage.a%2Eb');
    t.equal(message?.headers['Nats-Msg-Id'], 'a');
    t.equal(message?.headers['Nats-Expected-Stream'], 'USAGE');
    t.match(message?.headers['Content-Type'], /^application\/cloudevents\+json/);
    t.equal(message?.body, JSON.stringify(EVENT));
    t.match(server.connects[0], { name: 'ra-sidecar' });
  },
);

t.test('JetStream’s error about an event is a refusal, any other error is retried', async (t) => {
  const server = await NatsPeer.start(t);
  for (const code of [10_054, 10_097]) {
    server.verdict = () => ({ code });
    t.match(await answerOf(server.port), { kind: 'refused', indices: [0], status: code });
  }
  // Another stream, no room, no storage, no quorum, a sealed stream.
  for (const code of [10_060, 10_077, 10_047, 10_008, 10_109]) {
    server.verdict = () => ({ code });
    t.match(await answerOf(server.port), { kind: 'later', why: `JetStream ${code}` });
  }
  server.verdict = () => 'no responders';
  t.match(await answerOf(server.port), { kind: 'later', why: 'no stream' });
});

t.test('an event that is longer than the server accepts is refused before it is sent', async (t) => {
  const server = await NatsPeer.start(t);
  const long = { ...EVENT, data: { ...EVENT.data, requestId: 'x'.repeat(70_000) } };
  t.match(await answerOf(server.port, {}, long), { kind: 'refused', status: 10_054 });
  t.equal(server.messages.length, 0);
});

t.test('another stream and another subject', async (t) => {
  const server = await NatsPeer.start(t);
  const environment = { RA_DELIVERY_NATS_STREAM: 'BILLS', RA_DELIVERY_NATS_SUBJECT: 'usage.{account}.done' };
  server.verdict = ({ subject, headers }) => {
    t.equal(subject, 'usage.a%2Eb.done');
    t.equal(headers['Nats-Expected-Stream'], 'BILLS');
    return { seq: 1, duplicate: false, stream: 'BILLS' };
  };
  t.match(await answerOf(server.port, environment), { kind: 'accepted' });
});

t.test('an answer that is not an acknowledgement of the stream stores nothing', async (t) => {
  const server = await NatsPeer.start(t);
  for (const stranger of [
    {},
    [],
    { ok: true },
    { stream: 'USAGE' },
    { stream: 'OTHER', seq: 1 },
    { stream: 'USAGE', seq: 0 },
    { stream: 'USAGE', seq: '1' },
  ]) {
    server.verdict = () => ({ stranger });
    const answer = await answerOf(server.port);
    t.match(answer, { kind: 'later', stored: [], why: 'no acknowledgement of the stream' }, JSON.stringify(stranger));
  }
  server.verdict = () => undefined;
  t.strictSame(await answerOf(server.port), { kind: 'accepted' });
});

t.test('credentials are read from a file for each connection', async (t) => {
  const server = await NatsPeer.start(t);
  const secret = file(t, `edge:${SECRET}:7\n`);
  const withFile = (auth: string): Record<string, string> => ({
    RA_DELIVERY_NATS_AUTH: auth,
    RA_DELIVERY_NATS_SECRET_FILE: secret,
  });
  await answerOf(server.port, withFile('password'));
  t.match(server.connects[0], { user: 'edge', pass: `${SECRET}:7` });
  writeFileSync(secret, `${SECRET}\n`);
  await answerOf(server.port, withFile('token'));
  t.match(server.connects[1], { auth_token: SECRET });
  const user = nkeys.createUser();
  writeFileSync(secret, `${new TextDecoder().decode(user.getSeed())}\n`);
  await answerOf(server.port, withFile('nkey'));
  t.match(server.connects[2], { nkey: user.getPublicKey() });

  for (const [auth, text] of [
    ['password', SECRET],
    ['token', `${SECRET} ${SECRET}`],
    ['nkey', SECRET],
    ['creds', SECRET],
  ] as const) {
    writeFileSync(secret, text);
    const answer = await answerOf(server.port, withFile(auth));
    t.match(answer, { kind: 'later', why: 'FileProblem' });
    t.notOk(JSON.stringify(answer).includes(SECRET));
  }
  t.equal(server.connects.length, 3);
});

t.test('no server, and a server without TLS although it is required', async (t) => {
  t.match(await answerOf(await deadPort()), { kind: 'later', why: 'ECONNREFUSED' });
  const server = await NatsPeer.start(t);
  t.match(await answerOf(server.port, { RA_DELIVERY_NATS_TLS: 'true' }), { kind: 'later', why: 'ConnectionError' });
  t.equal(server.connects.length, 0, 'nothing is sent unencrypted');
});
