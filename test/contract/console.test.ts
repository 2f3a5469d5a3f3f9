/** The operators’ console over HTTP: page, feed and access. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { PAGE_FILES } from '../../sidecar/console/console.js';
import { errorOf } from '../support/error-answer.js';
import { chatBody, JSON_HEADERS } from '../support/in-process.js';
import { PATIENT_MS } from '../support/patience.js';
import { ask, CHAT, start, watch } from '../support/watched-console.js';

t.test('the page is static and cached, and its policy allows only its own content', async (t) => {
  const sidecar = await start(t);
  for (const [path, name] of Object.entries(PAGE_FILES)) {
    const response = await ask(sidecar, path);
    t.equal(response.status, 200, path);
    const type = { html: 'text/html', css: 'text/css', js: 'text/javascript', svg: 'image/svg+xml' };
    t.ok(response.field('content-type')?.startsWith(type[name.split('.')[1] as keyof typeof type]), path);
    const policy = response.field('content-security-policy') ?? '';
    for (const rule of ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"])
      t.ok(policy.split('; ').includes(rule), `${path}: ${rule}`);
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
  for (const path of ['/console/', '/console/tsconfig.json', '/console/../app.js', '/console/nothing.js'])
    t.equal((await ask(sidecar, path)).status, 404, path);
  for (const path of ['/console', '/console/events'])
    t.equal((await sidecar.ask('GET', path, JSON_HEADERS)).status, 404, `${path} is not public`);
});

t.test('the feed: one frame at once, then one an interval, each with the complete state', async (t) => {
  const sidecar = await start(t);
  const feed = await watch(t, sidecar);
  t.equal(feed.response.status, 200);
  t.match(feed.response.headers.get('content-type'), /^text\/event-stream/);
  t.equal(feed.response.headers.get('cache-control'), 'no-store');
  t.equal(feed.response.headers.get('access-control-allow-origin'), null);
  const [first, second, third] = [await feed.next(), await feed.next(), await feed.next()];
  t.match(first, {
    v: 3,
    intervalMs: 250,
    readiness: { status: 'ready', reasons: [] },
    models: [
      {
        model: 'm',
        kind: 'chat',
        engine: {
          state: 'ready',
          problem: null,
          restarts: 0,
          runsOn: 'CPU',
          replicas: [{ state: 'ready', problem: null, busy: 0, restarts: 0, weights: 'stub' }],
        },
        holders: [],
      },
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
  t.equal((await ask(sidecar, '/console/events', {}, 'HEAD')).status, 200, 'HEAD opens no feed');
});

t.test('viewers are limited; a further one gets Retry-After, and is accepted after another has left', async (t) => {
  const sidecar = await start(t, { console: { viewers: 2, intervalMs: 250 } });
  const [first, second] = [await watch(t, sidecar), await watch(t, sidecar)];
  t.ok((await first.next()) && (await second.next()));
  const full = await ask(sidecar, '/console/events');
  t.equal(full.status, 429);
  t.equal(errorOf(full).code, 'capacity_exceeded');
  t.equal(full.field('retry-after'), '10');
  first.close();
  // Only the free place shows that it left.
  let third = await watch(t, sidecar);
  while (third.response.status === 429) third = await watch(t, sidecar);
  t.ok(await third.next());
});

t.test('with a limit of 0 viewers there is no console', async (t) => {
  const sidecar = await start(t, { console: { viewers: 0 } });
  for (const path of ['/console', '/console/main.js', '/console/events'])
    t.equal((await ask(sidecar, path)).status, 404, path);
  t.equal((await ask(sidecar, '/metrics')).status, 200);
});

t.test('with a key, the feed and the numbers require it; the page and health do not', async (t) => {
  const file = join(t.testdir(), 'operators.txt');
  const [old, fresh] = ['o'.repeat(40), 'n'.repeat(40)];
  await writeFile(file, `# rotated\n${old}\n${fresh}\n`);
  const sidecar = await start(t, { operators: { port: 0, secretFile: file } });
  for (const path of ['/metrics', '/admission', '/keys', '/console/events']) {
    for (const headers of [{}, { Authorization: 'Bearer wrong' }, { Authorization: `Basic ${old}` }]) {
      const refused = await ask(sidecar, path, headers);
      t.equal(refused.status, 401, path);
      t.equal(errorOf(refused).code, 'invalid_api_key');
      t.equal(refused.field('www-authenticate'), 'Bearer');
    }
    t.equal((await ask(sidecar, `${path}?key=${old}`)).status, 401, 'a key in the URL is not accepted');
  }
  for (const key of [old, fresh]) {
    const headers = { Authorization: `Bearer ${key}` };
    t.equal((await ask(sidecar, '/metrics', headers)).status, 200);
    t.equal((await ask(sidecar, '/admission', headers)).status, 200);
    t.ok(await (await watch(t, sidecar, headers)).next());
  }
  t.equal((await ask(sidecar, '/console')).status, 200);
  t.equal((await ask(sidecar, '/healthz')).status, 200);
  t.notMatch((await ask(sidecar, '/readyz')).body, /reasons/, 'without the key no reasons are shown');
  t.match((await ask(sidecar, '/readyz', { Authorization: `Bearer ${old}` })).body, /reasons/);
});

t.test('a change of the keys ends all feeds: one that was opened with a removed key is not continued', async (t) => {
  const file = join(t.testdir(), 'operators.txt');
  const [old, fresh] = ['o'.repeat(40), 'n'.repeat(40)];
  await writeFile(file, `${old}\n${fresh}\n`);
  const sidecar = await start(t, { operators: { port: 0, secretFile: file } });
  const open = (key: string) => watch(t, sidecar, { Authorization: `Bearer ${key}` });
  const [leaving, staying] = [await open(old), await open(fresh)];
  t.ok((await leaving.next()) && (await staying.next()));
  await writeFile(file, `${fresh}\n`);
  for (const feed of [leaving, staying]) while ((await feed.next()) !== undefined);
  t.equal((await open(old)).response.status, 401);
  t.ok(await (await open(fresh)).next(), 'a page with a valid key comes back');
});

t.test('viewers see a drain to its end, which ends the feed', async (t) => {
  const sidecar = await start(t, { drain: { timeoutMs: PATIENT_MS } });
  const feed = await watch(t, sidecar);
  const held = await sidecar.begin(CHAT, chatBody('m', 'hold'));
  await feed.until(({ models }) => models[0]?.holders.length === 1);
  const drained = sidecar.app.drain();
  await feed.until(({ readiness }) => readiness.status === 'draining');
  held.close();
  while ((await feed.next()) !== undefined);
  await drained;
  t.pass('the feed ended without an error');
});
