/** Calls from a web page of another origin in Debian’s Chromium. */
import t from 'tap';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { PageServer } from './chromium.js';
import type { Report, PageCall } from './page.js';

type Answer = Extract<PageCall, { kind: 'answer' }>;

const page = await PageServer.start(t);
const sidecar = await Sidecar.start(t, {
  config: {
    ...(await chatOnly(2)),
    cors: { origins: ['https://app.example', page.origin] },
    // The second failed key of an address is answered 429 with a Retry-After.
    keys: { failuresPerMinute: 1 },
  },
});
const given = { base: sidecar.base, key: sidecar.key, model: CHAT };

t.test('a page of an allowed origin', async (t) => {
  const seen = (await page.show(t, given)) as Report;

  await t.test('streams a chat and reads the headers that are exposed', async (t) => {
    const { status, headers, body } = answer(seen.streamed);
    t.equal(status, 200);
    t.match(headers['content-type'], /^text\/event-stream/);
    t.match(headers['x-request-id'], /^[\w-]{36}$/);
    t.match(headers['server-timing'], /^authorize;dur=[\d.]+, ra-queue;dur=[\d.]+, ra-admit;dur=[\d.]+$/);
    const frames = body.split('\n\n').filter((frame) => frame.startsWith('data: '));
    t.equal(frames.at(-1), 'data: [DONE]');
    t.ok(frames.length > 4, 'token by token');
  });

  await t.test('gets the server’s times from the browser', async (t) => {
    t.ok(seen.timed, 'Timing-Allow-Origin exposes when the answer began');
    t.strictSame(
      seen.timing.map(({ name }) => name),
      ['authorize', 'ra-queue', 'ra-admit'],
    );
    const timing = seen.timing.map(({ name, duration }) => `${name};dur=${duration}`).join(', ');
    t.equal(timing, answer(seen.streamed).headers['server-timing'], 'equal to the header’s');
    t.ok(seen.timing.some(({ duration }) => duration > 0));
  });

  await t.test('calls every other route', async (t) => {
    t.match(JSON.parse(answer(seen.whole).body), { object: 'chat.completion', model: CHAT });
    t.match(JSON.parse(answer(seen.models).body), { object: 'list', data: [{ id: CHAT }] });
    t.equal(answer(seen.health).status, 200);
  });

  await t.test('reads refusals and their Retry-After', async (t) => {
    const refused = answer(seen.badKey);
    t.equal(refused.status, 401);
    t.match(JSON.parse(refused.body), { error: { code: 'invalid_api_key' } });
    t.match(refused.headers['x-request-id'], /^[\w-]{36}$/);
    t.equal(refused.headers['retry-after'], undefined, 'only if the answer has one');
    const limited = answer(seen.badKeys);
    t.equal(limited.status, 429);
    t.match(limited.headers['retry-after'], /^\d+$/);
    t.match(limited.headers['server-timing'], /ra-queue/);
  });

  await t.test('cannot send cookies or gateway headers', async (t) => {
    t.strictSame(seen.withCookies, { kind: 'failed', name: 'TypeError' });
    t.strictSame(seen.gatewayHeader, { kind: 'failed', name: 'TypeError' });
  });

  await t.test('aborts a reply while it streams', async (t) => {
    t.equal(seen.aborted, 'AbortError');
    await sidecar.logged('request', 1, ({ status }) => status === 499);
    t.equal(await sidecar.metric('ra_sidecar_seats_busy', { model: CHAT }), 0);
  });

  await t.test('uses OpenAI’s client unchanged', async (t) => {
    const { text, requestId, error } = seen.sdk;
    t.equal(text, textOf(answer(seen.streamed).body), 'the same reply');
    t.match(requestId, /^[\w-]{36}$/);
    t.equal(error, 'user_rate_limited');
  });

  await t.test('one preflight request is cached for later calls', async (t) => {
    const asked = (method: string): Promise<number> =>
      sidecar.metric('http_server_request_duration_seconds_count', {
        http_request_method: method,
        http_route: '/v1/chat/completions',
      });
    const [preflights, posts] = [await asked('OPTIONS'), await asked('POST')];
    t.ok(preflights >= 1 && preflights < posts, `${preflights} preflights for ${posts} calls`);
  });
});

t.test('a page of any other origin is refused, and no request runs for it', async (t) => {
  const posts = (): Promise<number> =>
    sidecar.metric('http_server_request_duration_seconds_count', {
      http_request_method: 'POST',
      http_route: '/v1/chat/completions',
    });
  const before = await posts();
  const elsewhere = await PageServer.start(t);
  const seen = (await elsewhere.show(t, given)) as Report;
  const failed = { kind: 'failed', name: 'TypeError' };
  for (const call of ['streamed', 'whole', 'models', 'health', 'badKey', 'badKeys'] as const) {
    t.strictSame(seen[call], failed, call);
  }
  t.strictSame(seen.timing, []);
  t.notOk(seen.timed, 'nor how long it took');
  t.equal(seen.sdk.text, '');
  t.equal(await posts(), before, 'no call was sent after its preflight failed');
});

function answer(seen: PageCall): Answer {
  if (seen.kind === 'failed') throw new Error(`the page saw ${seen.name}`);
  return seen;
}

/** The text of a stream’s frames. */
function textOf(body: string): string {
  return [...body.matchAll(/^data: (\{.*\})$/gm)]
    .map(([, json = '{}']) => JSON.parse(json) as { choices: { delta: { content?: string } }[] })
    .map(({ choices }) => choices[0]?.delta.content ?? '')
    .join('');
}
