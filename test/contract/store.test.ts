/** Three sidecars that share a store: limits and Idempotency-Keys over HTTP, on a real PostgreSQL. */
import t, { type Test } from 'tap';
import type { KeyLimits } from '../../sidecar/access/limits.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { FeedReader } from '../support/console-feed.js';
import { errorOf, holdError } from '../support/error-answer.js';
import { ACME, chatBody, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { eventually } from '../support/processes.js';
import { sharedPostgres } from '../support/postgres.js';

const CHAT = '/v1/chat/completions';

const server = await sharedPostgres();
const { name: database, url } = await server.database();
const fleet = await Promise.all(
  [60_000, 60_000, 6000].map((leaseMs) =>
    InProcess.start(t, {
      models: [{ id: 'chat', kind: 'chat', seats: 8 }],
      config: { queue: { ...PATIENT_QUEUE, waitingPerSeat: 40 }, store: { url, timeoutMs: 5000, leaseMs } },
    }),
  ),
);
const [one, two, three] = fleet as [InProcess, InProcess, InProcess];

/** The headers of a new key with these limits, at all three. */
function key(name: string, limits: KeyLimits): Record<string, string> {
  const Authorization = `Bearer ${name}`;
  for (const { identity } of fleet) identity.answers.set(Authorization, { ...ACME, keyId: name, limits });
  return { Authorization };
}

async function count(table: string): Promise<number> {
  return Number((await server.sql(`select count(*) as n from ra_sidecar.${table}`, database)).rows[0]?.['n']);
}

async function gone(t: Test, what: string, table: string): Promise<void> {
  await eventually(what, async () => (await count(table)) === 0);
  t.pass(what);
}

t.test('requests in a minute, over all three; one that is refused later does not count', async (t) => {
  const headers = key('minute', { chat: { perMinute: 6 } });
  for (let i = 0; i < 5; i++) {
    const sidecar = fleet[i % 3] as InProcess;
    t.equal((await sidecar.post(CHAT, chatBody('chat', 'echo'), headers)).status, 200);
    const bad = await sidecar.post(CHAT, { model: 'chat' }, headers);
    t.equal(bad.status, 400);
    // The stamp of a refused request is given back after its answer.
    await eventually('its stamp is free', async () => (await count('hit')) === i + 1);
  }
  const last = await one.post(CHAT, chatBody('chat', 'echo'), headers);
  t.equal(last.field('x-ratelimit-remaining-requests'), '0');
  for (const sidecar of fleet) {
    const refused = await sidecar.post(CHAT, chatBody('chat', 'echo'), headers);
    holdError(t, 'limited', refused, {
      status: 429,
      type: 'rate_limit_error',
      code: 'user_rate_limited',
      retry: true,
      param: null,
    });
  }
  t.equal((await two.post(CHAT, chatBody('chat', 'echo'), key('other', { chat: { perMinute: 1 } }))).status, 200);
});

t.test('requests in flight, over all three; the answer comes before the body has arrived', async (t) => {
  const headers = key('flight', { chat: { inFlight: 2 } });
  const held = [await one.begin(CHAT, chatBody('chat', 'hold'), headers)];
  held.push(await two.begin(CHAT, chatBody('chat', 'hold'), headers));
  await eventually('both have a place', async () => (await count('flight')) === 2);
  const unfinished = await three.connect();
  unfinished.request('POST', CHAT, { ...JSON_HEADERS, ...headers, 'Content-Length': '1000' }, '{"model":');
  t.equal((await unfinished.response()).status, 429);
  for (const connection of held) connection.close();
  await gone(t, 'places of callers that left are free', 'flight');
  t.equal((await three.post(CHAT, chatBody('chat', 'echo'), headers)).status, 200);
});

t.test('one Idempotency-Key to three at once: one runs', async (t) => {
  const headers = { 'Idempotency-Key': 'a' };
  const answers = await Promise.all(fleet.map((it) => it.post(CHAT, chatBody('chat', 'echo'), headers)));
  t.strictSame(answers.map(({ status }) => status).sort(), [200, 409, 409]);
  await eventually('it is completed', async () => (await count('claim where completed')) === 1);
  const again = await two.post(CHAT, chatBody('chat', 'echo'), headers);
  t.equal(again.status, 409);
  t.match(errorOf(again).message, /completed/);
  t.equal((await three.post(CHAT, chatBody('chat', 'echo', { max_tokens: 3 }), headers)).status, 422);
  const records = fleet.flatMap(({ spool }) => spool.records).filter(({ claim }) => claim !== undefined);
  t.strictSame(
    records.map(({ kind }) => kind).filter((kind) => kind === 'close'),
    ['close'],
    'its close names the key',
  );

  const failing = { 'Idempotency-Key': 'b' };
  t.not((await one.post(CHAT, chatBody('chat', 'fail'), failing)).status, 200);
  await gone(t, 'a key whose request failed is free', 'claim where not completed');
  t.equal((await two.post(CHAT, chatBody('chat', 'echo'), failing)).status, 200);
});

t.test('without the store nothing that it has to count is let in', async (t) => {
  await server.sql(`revoke usage on schema ra_sidecar from ra_replica`, database);
  const headers = key('down', { chat: { perMinute: 6 } });
  const overloaded = { status: 503, type: 'server_error', code: 'control_plane_overloaded', retry: true, param: null };
  holdError(t, 'limits', await one.post(CHAT, chatBody('chat', 'echo'), headers), overloaded);
  holdError(t, 'keys', await one.post(CHAT, chatBody('chat', 'echo'), { 'Idempotency-Key': 'c' }), overloaded);
  t.equal((await one.post(CHAT, chatBody('chat', 'echo'))).status, 200, 'a key without limits, without the header');
  await eventually(
    'its metrics say so',
    async () => (await three.metric('ra_sidecar_store_state{state="apart"}')) === 1,
  );
  await server.sql(`grant usage on schema ra_sidecar to ra_replica`, database);
  await eventually(
    'it answers again',
    async () => (await one.post(CHAT, chatBody('chat', 'echo'), headers)).status === 200,
  );
});

t.test('a sidecar whose place another process has is not ready, and its metrics say so', async (t) => {
  const state = 'ra_sidecar_store_state{state="fenced"}';
  t.equal(await two.metric(state), 0);
  t.ok((await two.metric('ra_sidecar_store_replicas')) >= 1);
  await server.sql('update ra_sidecar.replica set epoch = epoch + 1', database);
  const headers = key('fenced', { chat: { perMinute: 6 } });
  t.equal((await two.post(CHAT, chatBody('chat', 'echo'), headers)).status, 503);
  await eventually('it is fenced', async () => (await two.metric(state)) === 1);
  const feed = await FeedReader.open(two.app.operatorsPort);
  t.match((await feed.next())?.fleet, { state: 'fenced' }, "so does the operators' page");
  feed.close();
  const ready = await two.ask('GET', '/readyz', {});
  t.equal(ready.status, 503);
  t.match(JSON.parse(ready.body), { status: 'unhealthy', parts: { store: 'unhealthy' } });
  t.equal((await two.post(CHAT, chatBody('chat', 'echo'))).status, 200, 'what needs no store is served');
});
