/** Seats, queues and unavailable parts on the operators’ console, compared with the other pages. */
import t from 'tap';
import { sameNumbers } from '../support/console-feed.js';
import { ACME, chatBody, decisionBody, JSON_HEADERS } from '../support/in-process.js';
import { shareLanes } from '../support/shared-lanes.js';
import { killChild, LONG_LANE, ProcessGate } from '../support/process-gate.js';
import { HELD_CACHE, HELD_TOKENS } from '../support/stub-script.js';
import { CHAT, MODELS, start, watch } from '../support/watched-console.js';

shareLanes(t);

t.test('each seat with its account and its progress', async (t) => {
  const sidecar = await start(t);
  sidecar.identity.answers.set('Bearer other', { ...ACME, account: 'birch', weight: 16 });
  const feed = await watch(t, sidecar);
  const hold = await sidecar.begin(CHAT, chatBody('m', 'hold', { user: 'nobody-is-to-see' }));
  const one = await feed.until(({ models }) => models[0]?.holders[0]?.state === 'prefilling');
  t.match(one.models[0]?.holders, [{ account: 'acme', class: 'standard', state: 'prefilling', seats: [0] }]);
  await sidecar.begin(CHAT, chatBody('m', 'begun', { stream: true }), { Authorization: 'Bearer other' });
  const two = await feed.until(({ models }) => models[0]?.holders[1]?.state === 'decoding');
  t.match(two.models[0]?.holders[1], { account: 'birch', class: 'interactive', state: 'decoding', seats: [1] });
  await sidecar.begin(CHAT, chatBody('m', 'echo'));
  const three = await feed.until(({ models }) => models[0]?.queue.waiting === 1);
  t.match(
    three.models[0]?.queue.accounts.find(({ account }) => account === 'acme'),
    { waiting: 1, running: 1 },
  );
  hold.close();
  const four = await feed.until(({ models }) => models[0]?.queue.waiting === 0 && models[0].holders.length < 2);
  t.match(four.models[0]?.holders, [{ account: 'birch', seats: [1] }], 'the request that stays keeps its seat');
  t.ok((four.models[0]?.holders[0]?.ageMs ?? 0) > 0);
  t.notMatch(JSON.stringify([one, two, three, four]), /nobody-is-to-see|Hello|key-1|Bearer/);
});

t.test('a request that the engine has not begun is shown as starting', async (t) => {
  const sidecar = await start(t);
  const feed = await watch(t, sidecar);
  await sidecar.begin(CHAT, chatBody('m', 'queued'));
  const seen = await feed.until(({ models }) => models[0]?.holders.length === 1);
  t.equal(seen.models[0]?.holders[0]?.state, 'starting');
});

t.test('its numbers equal those of /metrics and /admission', async (t) => {
  const sidecar = await start(t, { queue: { waitingPerSeat: 0 } });
  for (let i = 0; i < 6; i += 1) await sidecar.post(CHAT, chatBody('m', i % 2 === 0 ? 'echo' : 'reused'));
  await sidecar.post(CHAT, chatBody('m', 'fail'));
  await sidecar.post('/v1/decisions', decisionBody('d'));
  const leaving = await sidecar.begin(CHAT, chatBody('m', 'begun', { stream: true }));
  await leaving.until('begun');
  leaving.close();
  await sidecar.until('ra_sidecar_cancels_total{model="m",phase="decoding"}', 1);
  // The tokens that a stub reports with its first heartbeat.
  for (const { id } of MODELS) await sidecar.until(`ra_sidecar_kv_tokens{model="${id}",use="kept"}`, HELD_TOKENS.kept);
  for (const count of [1, 2]) {
    await sidecar.begin(CHAT, chatBody('m', 'hold', count === 2 ? { n: 1 } : {}));
    await sidecar.until('ra_sidecar_seats_busy{model="m"}', count);
  }
  t.equal((await sidecar.post(CHAT, chatBody('m', 'echo'))).status, 429);
  t.equal((await sidecar.post(CHAT, chatBody('other', 'echo'))).status, 403);
  t.equal((await sidecar.post(CHAT, chatBody('m', 'echo'), { Authorization: 'Bearer unknown' })).status, 401);

  const feed = await watch(t, sidecar);
  const snapshot = await feed.next();
  if (!snapshot) throw new Error('no snapshot');
  const page = await (await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/metrics`)).text();
  const admission: unknown = await (await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/admission`)).json();
  sameNumbers(t, snapshot, page, admission);
  t.match(
    snapshot.models[0],
    {
      refusals: { full: 1 },
      cancels: { decoding: 1 },
      ended: { '': 6, bad_gateway: 1 },
      queue: { busy: 2 },
      tokens: { cached: 15 },
      engine: {
        runningTokens: HELD_TOKENS.running,
        keptTokens: HELD_TOKENS.kept,
        cache: { bytes: HELD_CACHE.bytes, hits: HELD_CACHE.hits, evictions: { room: HELD_CACHE.evictions.room } },
      },
    },
    'some values are not 0',
  );
  t.match(snapshot.errors, { bad_gateway: 1, capacity_exceeded: 1, invalid_api_key: 1, model_not_entitled: 1 });
  t.equal(snapshot.errors[''], undefined, 'successful requests are not errors');
  t.ok((snapshot.models[0]?.firstToken.counts.at(-1) ?? 0) >= 6);
  t.ok((snapshot.models[0]?.interToken.counts.at(-1) ?? 0) > 0);
});

t.test(
  'a prompt host that ended is shown as starting until the next is ready, and its restart is counted',
  async (t) => {
    const sidecar = await start(t);
    // The first long body starts the host.
    const long = await sidecar.ask('POST', '/v1/chat/completions', JSON_HEADERS, ' '.repeat(32 * 1024));
    t.equal(long.status, 400);
    const feed = await watch(t, sidecar);
    const gate = new ProcessGate(t);
    const before = process.execPath;
    process.execPath = gate.node;
    const restore = (): void => void (process.execPath = before);
    t.teardown(restore);
    gate.close(LONG_LANE);
    killChild(process.pid, LONG_LANE);
    const { goOn } = await gate.stopped();
    const away = await feed.until(({ promptHosts }) => promptHosts.some(({ up }) => !up));
    t.match(away.promptHosts[0], { lane: 'short', up: true, restarts: 0 });
    t.match(away.promptHosts[1], { lane: 'long', up: false, restarts: 1 });
    t.equal(away.promptHostRestarts, 1);
    t.equal(await sidecar.metric('ra_sidecar_prompt_host_restarts_total'), 1);
    goOn();
    const back = await feed.until(({ promptHosts }) => promptHosts.every(({ up }) => up));
    t.match(back.promptHosts[1], { lane: 'long', restarts: 1 }, 'no further restart');
    // Other files of this process use the next host: one without the gate, whose folder ends with this test.
    restore();
    killChild(process.pid, LONG_LANE);
    await feed.until(({ promptHosts: [, host] }) => host?.restarts === 2 && host.up);
  },
);
