/** Tests of both proxies: the same requests to real sidecars and real engines. */
import type { Test } from 'tap';
import { endsEarly, endsWell, ENDLESS, frames, SHORT } from '../support/open-stream.js';
import { eventually } from '../support/processes.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';
import { CHAT } from '../support/sidecar.js';
import { Pool, type Name } from './pool.js';
import type { Proxy, Swaps } from './proxies.js';

export type StartProxy = (t: Test, pool: Pool, swaps?: Swaps) => Promise<Proxy>;

const LONG = { ...ENDLESS, max_tokens: 1500, stream: true } as const;
/** `bodies.chatBytes`. */
const LIMIT = 80 * 1024 * 1024;

/** A pending request. */
export class Call {
  readonly connection: RawConnection;

  private constructor(connection: RawConnection) {
    this.connection = connection;
  }

  /** Sent on its own connection, which is closed with the test. */
  static async begin(
    t: Test,
    { port }: Proxy,
    { key }: Pool,
    body: object | string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Call> {
    const connection = await RawConnection.open(port);
    t.teardown(() => connection.close());
    const call = new Call(connection);
    const fields = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', ...headers };
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    connection.request('POST', '/v1/chat/completions', fields, text);
    return call;
  }

  /** Its whole answer. */
  response(): Promise<RawResponse> {
    return this.connection.response();
  }
}

/** One whole answer. */
export async function ask(...call: Parameters<typeof Call.begin>): Promise<RawResponse> {
  return await (await Call.begin(...call)).response();
}

/** The chat engine of the sidecar that works on a request now. */
async function busyOne(pool: Pool): Promise<Name> {
  let name: Name | undefined;
  await eventually('a sidecar works', async () => (name = await pool.busy()) !== undefined);
  return name!;
}

/** Otherwise the seat of a reply that has just arrived could be taken for the next request's. */
async function noneBusy(pool: Pool): Promise<void> {
  await eventually('no seat is in use', async () => (await pool.busy()) === undefined);
}

function isWhole(t: Test, response: RawResponse): void {
  t.equal(response.status, 200);
  t.match(JSON.parse(response.body), { object: 'chat.completion' });
}

/** Runs all of them. `trailers`: whether this proxy forwards trailers. */
export async function proxyCases(
  t: Test,
  start: StartProxy,
  { trailers }: { readonly trailers: boolean },
): Promise<void> {
  // The longest body may take a busy machine longer than `prompts.silenceMs`.
  const config = { stream: { keepAliveMs: 200, trailer: 'always' }, prompts: { silenceMs: 60_000 } };
  const pool = await Pool.start(t, { contextPerSeat: 16_384, config });
  const proxy = await start(t, pool);

  t.test('a stream arrives frame by frame', async (t) => {
    const engines = (['a', 'b'] as const).map((name) => pool.sidecar(name).enginePid(CHAT));
    for (const pid of engines) process.kill(pid, 'SIGSTOP');
    const call = await Call.begin(t, proxy, pool, LONG);
    // The engine is stopped: a proxy that collects bytes would hold back these few.
    await call.connection.until(': keep-alive\n');
    for (const pid of engines) process.kill(pid, 'SIGCONT');
    t.equal(frames(await call.response()).at(-1), '[DONE]');
  });

  t.test('a stream ends as at the sidecar', async (t) => {
    const response = await ask(t, proxy, pool, LONG, { 'x-request-id': 'my-request' });
    t.equal(response.field('x-request-id'), 'my-request');
    t.match(response.field('server-timing'), /ra-queue;dur=.*ra-admit;dur=/);
    t.match(response.field('content-type'), /^text\/event-stream/);
    if (trailers) endsWell(t, response);
    else {
      t.equal(frames(response).at(-1), '[DONE]');
      t.strictSame(response.trailers, [], 'the trailer is lost');
    }
  });

  t.test('a stream that breaks because its engine ends has one error frame at its end', async (t) => {
    await noneBusy(pool);
    const call = await Call.begin(t, proxy, pool, { ...ENDLESS, stream: true });
    await call.connection.until('"delta"');
    const name = await busyOne(pool);
    process.kill(pool.sidecar(name).enginePid(CHAT), 'SIGKILL');
    const response = await call.response();
    const error = { code: 'bad_gateway', type: 'server_error' };
    if (trailers) endsEarly(t, response, error);
    else {
      const data = frames(response);
      t.equal(data.filter((frame) => frame.includes('"error"')).length, 1);
      t.match(JSON.parse(data.at(-1)!), { error });
    }
    await pool.ready();
    isWhole(t, await ask(t, proxy, pool, SHORT));
  });

  t.test('a whole reply whose engine ends is one 502, and is not retried', async (t) => {
    await noneBusy(pool);
    const call = await Call.begin(t, proxy, pool, { ...ENDLESS, stream: false }, { 'x-request-id': 'lost' });
    const name = await busyOne(pool);
    process.kill(pool.sidecar(name).enginePid(CHAT), 'SIGKILL');
    const response = await call.response();
    t.equal(response.status, 502);
    t.match(JSON.parse(response.body), { error: { code: 'bad_gateway' } });
    await pool.ready();
    isWhole(t, await ask(t, proxy, pool, SHORT));
    await eventually('it is logged', () => pool.seen('lost') > 0);
    t.equal(pool.seen('lost'), 1, 'one sidecar received it, once');
  });

  t.test('a caller that disconnects cancels its request: during a whole reply, or during a stream', async (t) => {
    const gone = (): number => pool.requests.filter(({ status }) => status === 499).length;
    for (const stream of [false, true]) {
      const before = gone();
      const call = await Call.begin(t, proxy, pool, { ...ENDLESS, stream });
      await busyOne(pool);
      if (stream) await call.connection.until('"delta"');
      call.connection.close();
      await noneBusy(pool);
      await eventually('it is logged', () => gone() > before);
      t.equal(gone(), before + 1, `stream: ${stream}`);
    }
  });

  t.test('a refusal for a key’s limit is returned with its Retry-After, and is not retried', async (t) => {
    const pool = await Pool.start(t, { contextPerSeat: 16_384, config: { limits: { chat: { inFlight: 1 } } } });
    const proxy = await start(t, pool);
    // One on each, since the proxy sends to the sidecar with the fewest.
    for (let i = 0; i < 2; i++) {
      const call = await Call.begin(t, proxy, pool, { ...ENDLESS, stream: true });
      await call.connection.until('"delta"');
    }
    const response = await ask(t, proxy, pool, SHORT, { 'x-request-id': 'refused' });
    t.equal(response.status, 429);
    t.match(JSON.parse(response.body), { error: { code: 'user_rate_limited' } });
    t.match(response.field('retry-after'), /^[1-9][0-9]*$/);
    t.match(response.field('retry-after-ms'), /^[1-9][0-9]*$/);
    t.equal(response.field('x-request-id'), 'refused');
    await eventually('it is logged', () => pool.seen('refused') > 0);
    t.equal(pool.seen('refused'), 1);
  });

  t.test('a body of the maximum length is forwarded, one byte more is refused', async (t) => {
    const text = JSON.stringify(SHORT);
    isWhole(t, await ask(t, proxy, pool, text.padEnd(LIMIT)));
    t.equal((await ask(t, proxy, pool, text.padEnd(LIMIT + 1))).status, 413);
  });

  t.test('headers reserved for gateways are removed', async (t) => {
    const connection = await RawConnection.open(proxy.port);
    t.teardown(() => connection.close());
    const body = JSON.stringify(SHORT);
    const names = ['account', 'key-id', 'environment', 'models', 'deadline-ms'];
    // Twice, which a sidecar would refuse.
    const twice = names.map((name) => `x-ra-${name}: 1\r\nX-RA-${name}: 1\r\n`).join('');
    const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer ${pool.key}\r\nContent-Type: application/json\r\n`;
    connection.send(`${head}${twice}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
    isWhole(t, await connection.response());
  });

  t.test('other paths than the API’s are not reachable', async (t) => {
    for (const path of ['/metrics', '/admission', '/readyz', '/', '/v2/']) {
      const connection = await RawConnection.open(proxy.port);
      t.teardown(() => connection.close());
      const response = await connection.request('GET', path).response();
      t.equal(response.status, 404, path);
      t.match(JSON.parse(response.body), { error: { code: 'not_found' } });
    }
  });

  t.test(
    'a connection that was idle for longer than the sidecar keeps one can be used for the next request',
    async (t) => {
      const connection = await RawConnection.open(proxy.port);
      t.teardown(() => connection.close());
      const fields = { Authorization: `Bearer ${pool.key}`, 'Content-Type': 'application/json' };
      const next = (): Promise<RawResponse> =>
        connection.request('POST', '/v1/chat/completions', fields, JSON.stringify(SHORT)).response();
      isWhole(t, await next());
      for (const name of ['a', 'b'] as const) {
        const direct = await RawConnection.open(pool.socket(name));
        await direct.request('GET', '/healthz').response();
        await direct.rest();
      }
      isWhole(t, await next());
    },
  );
}
