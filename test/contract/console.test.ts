/** The operators' console over HTTP: its page, its feed, who may watch, and that it says what the other pages say. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { PAGE_FILES } from '../../sidecar/console/page-files.js';
import type { AdmissionPage } from '../../sidecar/handlers/admission-page.js';
import { FeedReader, sameNumbers } from '../support/console-feed.js';
import { holdPromptHost } from '../support/faults.js';
import { errorOf } from '../support/error-answer.js';
import { ACME, chatBody, decisionBody, InProcess, JSON_HEADERS, type Options } from '../support/in-process.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';
import { HELD_TOKENS } from '../support/stub-script.js';

const CHAT = '/v1/chat/completions';
const MODELS = [
  { id: 'm', kind: 'chat', seats: 2 },
  { id: 'd', kind: 'decision', seats: 1 },
] as const;

/** A quarter of a second is the shortest there is. */
function start(t: Test, config: Options['config'] = {}): Promise<InProcess> {
  return InProcess.start(t, { models: MODELS, config: { console: { intervalMs: 250 }, ...config } });
}

/** One request on the operators' listener. */
async function ask(
  { app }: InProcess,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  method = 'GET',
): Promise<RawResponse> {
  const connection = await RawConnection.open(app.operatorsPort);
  const response = await connection.request(method, path, headers).response({ head: method === 'HEAD' });
  connection.close();
  return response;
}

async function watch(t: Test, { app }: InProcess, headers: Readonly<Record<string, string>> = {}): Promise<FeedReader> {
  const feed = await FeedReader.open(app.operatorsPort, headers);
  t.teardown(() => feed.close());
  return feed;
}

t.test('the page is static, kept by browsers, and may do nothing but show itself', async (t) => {
  const sidecar = await start(t);
  for (const [path, name] of Object.entries(PAGE_FILES)) {
    const response = await ask(sidecar, path);
    t.equal(response.status, 200, path);
    const type = { html: 'text/html', css: 'text/css', js: 'text/javascript', svg: 'image/svg+xml' };
    t.ok(response.field('content-type')?.startsWith(type[name.split('.')[1] as keyof typeof type]), path);
    const policy = response.field('content-security-policy') ?? '';
    for (const rule of ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]) {
      t.ok(policy.split('; ').includes(rule), `${path}: ${rule}`);
    }
    t.notMatch(policy, /unsafe|\*|https?:/);
    t.equal(response.field('x-content-type-options'), 'nosniff');
    t.equal(response.field('cache-control'), 'no-cache');
    t.equal(response.field('access-control-allow-origin'), undefined);
    const tag = response.field('etag') ?? '';
    t.match(tag, /^"[\w-]{22}"$/);
    for (const known of [tag, `W/${tag}`, `"other", ${tag}`]) {
      const again = await ask(sidecar, path, { 'If-None-Match': known });
      t.equal(again.status, 304);
      t.equal(again.body, '');
      t.equal(again.field('etag'), tag);
    }
    t.equal((await ask(sidecar, path, { 'If-None-Match': '"other"' })).status, 200);
    const head = await ask(sidecar, path, {}, 'HEAD');
    t.equal(head.field('content-length'), String(Buffer.byteLength(response.body)));
  }
  t.equal((await ask(sidecar, '/console', {}, 'POST')).status, 405);
  for (const path of ['/console/', '/console/tsconfig.json', '/console/../app.js', '/console/nothing.js']) {
    t.equal((await ask(sidecar, path)).status, 404, path);
  }
  for (const path of ['/console', '/console/events']) {
    t.equal((await sidecar.ask('GET', path, JSON_HEADERS)).status, 404, `${path} is not public`);
  }
});

t.test('the feed: one frame at once, one an interval, each a whole picture', async (t) => {
  const sidecar = await start(t);
  const feed = await watch(t, sidecar);
  t.equal(feed.response.status, 200);
  t.match(feed.response.headers.get('content-type'), /^text\/event-stream/);
  t.equal(feed.response.headers.get('cache-control'), 'no-store');
  t.equal(feed.response.headers.get('access-control-allow-origin'), null);
  const [first, second, third] = [await feed.next(), await feed.next(), await feed.next()];
  t.match(first, {
    v: 2,
    intervalMs: 250,
    readiness: { status: 'ready', reasons: [] },
    models: [
      { model: 'm', kind: 'chat', engine: { state: 'ready', problem: null, restarts: 0, runsOn: 'CPU' }, holders: [] },
      { model: 'd', kind: 'decision' },
    ],
    promptHosts: [
      { lane: 'short', up: true, queued: 0, running: 0, restarts: 0 },
      { lane: 'long', up: true },
    ],
  });
  t.ok((first?.residentBytes ?? 0) > 10e6);
  t.ok((third?.at ?? 0) - (second?.at ?? 0) >= 240);
  t.equal(third?.startedAt, first?.startedAt);
  t.equal((await ask(sidecar, '/console/events', {}, 'HEAD')).status, 200, 'HEAD watches nothing');
});

t.test('who holds which seat, and how far each is', async (t) => {
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
  t.match(four.models[0]?.holders, [{ account: 'birch', seats: [1] }], 'who stays keeps its seat');
  t.ok((four.models[0]?.holders[0]?.ageMs ?? 0) > 0);
  t.notMatch(JSON.stringify([one, two, three, four]), /nobody-is-to-see|Hello|key-1|Bearer/);
});

t.test('a request that the engine has not taken up is starting', async (t) => {
  const sidecar = await start(t);
  const feed = await watch(t, sidecar);
  await sidecar.begin(CHAT, chatBody('m', 'queued'));
  const seen = await feed.until(({ models }) => models[0]?.holders.length === 1);
  t.equal(seen.models[0]?.holders[0]?.state, 'handed');
});

t.test('its numbers are those of /metrics and /admission', async (t) => {
  const sidecar = await start(t, { queue: { waitingPerSeat: 0 } });
  for (let i = 0; i < 6; i += 1) await sidecar.post(CHAT, chatBody('m', i % 2 === 0 ? 'echo' : 'reused'));
  await sidecar.post(CHAT, chatBody('m', 'fail'));
  await sidecar.post('/v1/decisions', decisionBody('d'));
  const leaving = await sidecar.begin(CHAT, chatBody('m', 'begun', { stream: true }));
  await leaving.until('begun');
  leaving.close();
  await sidecar.until('ra_sidecar_cancels_total{model="m",phase="decoding"}', 1);
  // What a stub says that it holds, with its first heartbeat.
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
      engine: { runningTokens: HELD_TOKENS.running, keptTokens: HELD_TOKENS.kept },
    },
    'there was something to count',
  );
  t.match(snapshot.errors, { bad_gateway: 1, capacity_exceeded: 1, invalid_api_key: 1, model_not_entitled: 1 });
  t.equal(snapshot.errors[''], undefined, 'what went well is no error');
  t.ok((snapshot.models[0]?.firstToken.counts.at(-1) ?? 0) >= 6);
  t.ok((snapshot.models[0]?.interToken.counts.at(-1) ?? 0) > 0);
});

t.test('how long each account would wait is what /admission says', async (t) => {
  const sidecar = await start(t);
  sidecar.identity.answers.set('Bearer other', { ...ACME, account: 'birch', weight: 16 });
  for (const count of [1, 2]) {
    await sidecar.begin(CHAT, chatBody('m', 'hold'));
    await sidecar.until('ra_sidecar_seats_busy{model="m"}', count);
  }
  await sidecar.begin(CHAT, chatBody('m', 'echo'));
  await sidecar.begin(CHAT, chatBody('m', 'echo'), { Authorization: 'Bearer other' });
  await sidecar.until('ra_sidecar_waiting_requests{model="m",class="standard"}', 1);
  await sidecar.until('ra_sidecar_waiting_requests{model="m",class="interactive"}', 1);

  const predicted = ({ accounts }: Pick<AdmissionPage, 'accounts'>): Map<string, number> =>
    new Map(accounts.map(({ account, predictedWaitMs }) => [account, predictedWaitMs]));
  const page = async (): Promise<Map<string, number>> => {
    const response = await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/admission`);
    const { models } = (await response.json()) as { readonly models: readonly AdmissionPage[] };
    return predicted(models[0] ?? { accounts: [] });
  };
  const before = await page();
  const snapshot = await (await watch(t, sidecar)).next();
  const after = await page();
  const shown = predicted(snapshot?.models[0]?.queue ?? { accounts: [] });
  t.strictSame([...shown.keys()].sort(), ['acme', 'birch']);
  for (const [account, ms] of shown) {
    // The clock went on meanwhile: between two others, each of them rounded.
    const [one = NaN, other = NaN] = [before.get(account), after.get(account)];
    t.ok(ms >= Math.min(one, other) - 1 && ms <= Math.max(one, other) + 1, `${account}: ${one}, ${ms}, ${other}`);
    t.ok(ms > 0, `${account} would wait`);
  }
  t.not(shown.get('acme'), shown.get('birch'), 'each its own time');
});

t.test('a prompt host that died is starting until it is up again, and its restart is counted', async (t) => {
  const sidecar = await start(t);
  const feed = await watch(t, sidecar);
  const goOn = await holdPromptHost(process.pid, 'long');
  const away = await feed.until(({ promptHosts }) => promptHosts.some(({ up }) => !up));
  t.match(away.promptHosts[0], { lane: 'short', up: true, restarts: 0 });
  t.match(away.promptHosts[1], { lane: 'long', up: false, restarts: 1 });
  t.equal(away.promptHostRestarts, 1);
  t.equal(await sidecar.metric('ra_sidecar_prompt_host_restarts_total'), 1);
  goOn();
  const back = await feed.until(({ promptHosts }) => promptHosts.every(({ up }) => up));
  t.match(back.promptHosts[1], { lane: 'long', restarts: 1 }, 'no further one');
});

t.test('a spool that takes nothing is told, and why', async (t) => {
  const sidecar = await start(t);
  const feed = await watch(t, sidecar);
  t.match(await feed.next(), { readiness: { status: 'ready' }, spool: { why: null } });
  sidecar.spool.health = { ok: false, why: 'late' };
  const ill = await feed.until(({ readiness }) => readiness.status !== 'ready');
  t.match(ill, { readiness: { status: 'unhealthy', reasons: ['spool_unhealthy: late'] }, spool: { why: 'late' } });
  t.match(JSON.parse((await ask(sidecar, '/readyz')).body), ill.readiness, 'as /readyz has it');
  sidecar.spool.health = { ok: true };
  const well = await feed.until(({ readiness }) => readiness.status === 'ready');
  t.equal(well.spool.why, null);
});

t.test('so many may watch; one more is told when to come back, and comes when one left', async (t) => {
  const sidecar = await start(t, { console: { viewers: 2, intervalMs: 250 } });
  const [first, second] = [await watch(t, sidecar), await watch(t, sidecar)];
  t.ok((await first.next()) && (await second.next()));
  const full = await ask(sidecar, '/console/events');
  t.equal(full.status, 429);
  t.equal(errorOf(full).code, 'capacity_exceeded');
  t.equal(full.field('retry-after'), '10');
  first.close();
  // That it left is told by nothing but a place that is free again.
  let third = await watch(t, sidecar);
  while (third.response.status === 429) third = await watch(t, sidecar);
  t.ok(await third.next());
});

t.test('where nobody may watch there is no console', async (t) => {
  const sidecar = await start(t, { console: { viewers: 0 } });
  for (const path of ['/console', '/console/main.js', '/console/events']) {
    t.equal((await ask(sidecar, path)).status, 404, path);
  }
  t.equal((await ask(sidecar, '/metrics')).status, 200);
});

t.test('a drain is watched to its end, and ends the feed', async (t) => {
  const sidecar = await start(t, { drain: { timeoutMs: 600 } });
  const feed = await watch(t, sidecar);
  await sidecar.begin(CHAT, chatBody('m', 'hold'));
  await feed.until(({ models }) => models[0]?.holders.length === 1);
  const drained = sidecar.app.drain();
  await feed.until(({ readiness }) => readiness.status === 'draining');
  while ((await feed.next()) !== undefined);
  await drained;
  t.pass('whole, without an error');
});

t.test('with a key the feed and the numbers ask for it, the page and health do not', async (t) => {
  const file = join(t.testdir(), 'operators.txt');
  const [old, fresh] = ['o'.repeat(40), 'n'.repeat(40)];
  await writeFile(file, `# rotated\n${old}\n${fresh}\n`);
  const sidecar = await start(t, { operators: { port: 0, secretFile: file } });
  for (const path of ['/metrics', '/admission', '/console/events']) {
    for (const headers of [{}, { Authorization: 'Bearer wrong' }, { Authorization: `Basic ${old}` }]) {
      const refused = await ask(sidecar, path, headers);
      t.equal(refused.status, 401, path);
      t.equal(errorOf(refused).code, 'invalid_api_key');
      t.equal(refused.field('www-authenticate'), 'Bearer');
    }
    t.equal((await ask(sidecar, `${path}?key=${old}`)).status, 401, 'never in the URL');
  }
  for (const key of [old, fresh]) {
    const headers = { Authorization: `Bearer ${key}` };
    t.equal((await ask(sidecar, '/metrics', headers)).status, 200);
    t.equal((await ask(sidecar, '/admission', headers)).status, 200);
    t.ok(await (await watch(t, sidecar, headers)).next());
  }
  t.equal((await ask(sidecar, '/console')).status, 200);
  t.equal((await ask(sidecar, '/healthz')).status, 200);
  t.notMatch((await ask(sidecar, '/readyz')).body, /reasons/, 'without a key no reasons');
  t.match((await ask(sidecar, '/readyz', { Authorization: `Bearer ${old}` })).body, /reasons/);
});
