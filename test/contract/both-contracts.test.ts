/**
 * What `contract` does not change, over HTTP: billing, limits of keys, entitlements, zero retention, bounds, and that a
 * refusal names the place and the field.
 */
import t, { type Test } from 'tap';
import type { KeyLimits } from '../../sidecar/access/limits.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { LeakSearch } from '../support/leak-search.js';
import { MARK, canary } from '../support/canaries.js';
import { errorOf } from '../support/error-answer.js';
import { ACME, JSON_HEADERS, chatBody, type InProcess } from '../support/in-process.js';
import { frames } from '../support/open-stream.js';
import { agrees, chatPrice, lastClose, startPriced, type Usage } from '../support/priced-sidecar.js';
import type { RawResponse } from '../support/raw-http.js';
import { CHAT, MARKED_BESIDES, MESSAGES, RESPONSES, type ChatRoute, type Fields } from './tables/chat-routes.js';
import {
  NAMED_COMPATIBLE,
  NAMED_MESSAGES,
  NAMED_RESPONSES,
  NAMED_STRICT,
  NOT_SERVED,
  UNHELD_COMPATIBLE,
  UNHELD_MESSAGES,
  UNHELD_RESPONSES,
  UNHELD_STRICT,
  type NamedRefusal,
} from './tables/named-refusals.js';
import { CANARY } from './tables/rule.js';

/** The longest body of these sidecars. */
const BODY_BYTES = 2_000_000;

/** The longest name of a function, and the most messages. */
const MOST = { strict: { name: 64, messages: 4096 }, compatible: { name: 128, messages: 16_384 } } as const;

const MODES = { strict: [CHAT], compatible: [CHAT, RESPONSES, MESSAGES] } as const;
const NAMED: Readonly<Record<keyof typeof MODES, ReadonlyMap<ChatRoute, readonly NamedRefusal[]>>> = {
  strict: new Map([[CHAT, NAMED_STRICT]]),
  compatible: new Map([
    [CHAT, NAMED_COMPATIBLE],
    [RESPONSES, NAMED_RESPONSES],
    [MESSAGES, NAMED_MESSAGES],
  ]),
};

const UNHELD: typeof NAMED = {
  strict: new Map([[CHAT, UNHELD_STRICT]]),
  compatible: new Map([
    [CHAT, UNHELD_COMPATIBLE],
    [RESPONSES, UNHELD_RESPONSES],
    [MESSAGES, UNHELD_MESSAGES],
  ]),
};

/** The phases before the model begins. */
const TIMES = /\bra-queue;dur=[0-9.]+, ra-admit;dur=[0-9.]+$/;

/** The headers of a new key. */
function key(sidecar: InProcess, name: string, more: { limits?: KeyLimits } & Fields): Record<string, string> {
  const Authorization = `Bearer ${name}`;
  sidecar.identity.answers.set(Authorization, { ...ACME, keyId: name, ...more });
  return { Authorization };
}

function refusedBy(route: ChatRoute) {
  return (t: Test, name: string, answer: RawResponse, usual: number, code: string): string => {
    const { message, ...error } = errorOf(answer);
    const status = route.statuses?.[code] ?? usual;
    t.match({ status: answer.status, ...error }, { status, code }, name);
    return message;
  };
}

for (const contract of ['strict', 'compatible'] as const)
  t.test(contract, async (t) => {
    const routes = MODES[contract];
    const sidecar = await startPriced(t, '1000', {
      models: [
        { id: 'chat', kind: 'chat', seats: 4, contextPerSeat: 16_384 },
        { id: 'kept', kind: 'chat', cohort: 'early', seats: 1 },
      ],
      config: { contract, bodies: { chatBytes: BODY_BYTES }, queue: { ...PATIENT_QUEUE, waitingPerSeat: 1 } },
    });

    for (const route of routes) {
      const { path, mostTools } = route;
      const refused = refusedBy(route);
      const post = (more: Fields, headers: Readonly<Record<string, string>> = {}): Promise<RawResponse> =>
        sidecar.post(path, route.body(more), headers);

      await t.test(`${path}: the answer’s usage is billed`, async (t) => {
        const answer = await post({});
        const whole = route.usageOf(answer.body);
        t.ok(whole.completion_tokens > 0);
        agrees(t, lastClose(sidecar), whole, chatPrice(whole));
        const told = contract === 'compatible' && route !== MESSAGES;
        const cost = /"cost":([0-9.e-]+)/;
        t.equal(cost.exec(answer.body)?.[1], told ? String(chatPrice(whole) / 1e12) : undefined, 'what it cost');
        const options = route === CHAT ? { stream_options: { include_usage: true } } : {};
        const stream = await post({ stream: true, ...options });
        const streamed = route.usageOfStream(frames(stream));
        agrees(t, lastClose(sidecar), streamed, chatPrice(streamed));
        t.equal(cost.exec(stream.body)?.[1], told ? String(chatPrice(streamed) / 1e12) : undefined);
        const before = sidecar.spool.records.length;
        const poor = key(sidecar, `${path} poor`, { account: 'poor' });
        refused(t, 'no credit', await post({}, poor), 402, 'insufficient_credit');
        t.equal(sidecar.spool.records.length, before, 'a refused request is not billed');
      });

      await t.test(`${path}: a key’s limits count all chat routes together`, async (t) => {
        const once = key(sidecar, `${path} once`, { limits: { chat: { inFlight: 1, perMinute: 2 } } });
        const held = await sidecar.connect();
        const text = JSON.stringify(route.body());
        const length = { 'Content-Length': String(text.length) };
        held.request('POST', path, { ...JSON_HEADERS, ...once, ...length }, text.slice(0, 1));
        await sidecar.until('http_server_active_requests{http_request_method="POST",url_scheme="http"}', 1);
        for (const other of routes) {
          const answer = await sidecar.post(other.path, other.body(), once);
          t.match(refusedBy(other)(t, other.path, answer, 429, 'user_rate_limited'), /in flight/);
        }
        t.equal((await held.send(text.slice(1)).response()).status, 200);
        t.equal((await post({}, once)).status, 200);
        for (const other of routes) {
          const answer = await sidecar.post(other.path, other.body(), once);
          t.match(refusedBy(other)(t, other.path, answer, 429, 'user_rate_limited'), /60 seconds/);
        }
        const day = key(sidecar, `${path} day`, { tokensPerDay: 10_000 });
        t.equal((await post({}, day)).status, 200);
        key(sidecar, `${path} day`, { tokensPerDay: 1 });
        refused(t, 'a day’s tokens', await post({}, day), 429, 'quota_exceeded');
      });

      await t.test(`${path}: each answer tells what is left of the key’s limits after it`, async (t) => {
        const limits = { chat: { perMinute: 4 } };
        const limited = key(sidecar, `${path} left`, { limits, tokensPerDay: 100_000 });
        const left = (answer: RawResponse): number[] =>
          ['requests', 'tokens'].flatMap((of) =>
            ['limit', 'remaining'].map((what) =>
              Number(
                answer.field(route === MESSAGES ? `anthropic-ratelimit-${of}-${what}` : `x-ratelimit-${what}-${of}`),
              ),
            ),
          );
        t.strictSame(left(await post({ tools: 1 }, limited)), [4, 4, 100_000, 100_000], 'a refusal counts nothing');
        const whole = await post({}, limited);
        const used = route.usageOf(whole.body);
        const tokens = 100_000 - used.prompt_tokens - used.completion_tokens;
        t.strictSame(left(whole), [4, 3, 100_000, tokens]);
        t.match(whole.field('access-control-expose-headers'), /ratelimit.*ratelimit/, 'readable by pages');
        const streamed = await post({ stream: true }, limited);
        const {
          max_tokens = 256,
          max_output_tokens = 256,
          max_completion_tokens = 256,
        } = route.body() as Record<string, number>;
        const reserved = used.prompt_tokens + Math.min(256, max_tokens, max_output_tokens, max_completion_tokens);
        t.strictSame(left(streamed), [4, 2, 100_000, tokens - reserved], 'before the first byte of a stream');
        t.equal(streamed.status, 200);
        if (route !== MESSAGES) t.match(streamed.field('x-ratelimit-reset-requests'), /^(?:1m0s|5\ds)$/);
        t.notMatch((await post({})).raw, /ratelimit/, 'nothing to a key without limits');
      });

      await t.test(`${path}: the model’s queue and Server-Timing`, async (t) => {
        const early = key(sidecar, `${path} early`, { models: new Set(['kept']), cohort: 'early' });
        const waiting = (count: number): Promise<void> =>
          sidecar.until('ra_sidecar_waiting_requests{model="kept",class="standard"}', count);
        const running = await sidecar.begin(CHAT.path, chatBody('kept', 'begun', { stream: true }), early);
        await running.until('begun');
        const waits = await sidecar.begin(path, route.body({ model: 'kept', stream: true }), {
          ...early,
          TE: 'trailers',
        });
        await waiting(1);
        const full = await post({ model: 'kept' }, early);
        refused(t, 'a full queue', full, 429, 'capacity_exceeded');
        t.match(full.field('server-timing'), TIMES, 'the refusal has Server-Timing');
        t.ok(Number(full.field('retry-after')) >= 1);
        running.close();
        const streamed = await waits.response();
        t.equal(streamed.status, 200, 'a seat came free');
        t.match(streamed.field('server-timing'), TIMES);
        t.match(streamed.trailers[0]?.join(': '), /^Server-Timing: ra-ttft;dur=[0-9.]+$/);
        t.match((await post({ model: 'kept' }, early)).field('server-timing'), TIMES, 'of a whole reply');
      });

      await t.test(`${path}: entitlement`, async (t) => {
        const other = key(sidecar, `${path} other`, { models: new Set(['kept']), cohort: 'early' });
        refused(t, 'a model that the key may not call', await post({}, other), 403, 'model_not_entitled');
        t.equal((await post({ model: 'kept' }, other)).status, 200);
        refused(t, 'a model for a cohort', await post({ model: 'kept' }), 403, 'not_in_cohort');
        refused(t, 'a model that is not hosted', await post({ model: 'none' }), 403, 'model_not_entitled');
        refused(t, 'no key', await post({}, { Authorization: '' }), 401, 'invalid_api_key');
        const decides = key(sidecar, `${path} decides`, { routes: new Set(['decisions']) });
        t.equal((await post({}, decides)).status, 403, 'a key of another route');
      });

      await t.test(`${path}: bounds`, async (t) => {
        const tools = (count: number): object[] => Array.from({ length: count }, (_, i) => route.tool(`f${i}`));
        t.equal((await post({ tools: tools(128) })).status, 200, '128 tools');
        const message = refused(t, 'too many', await post({ tools: tools(mostTools + 1) }), 400, 'bad_request');
        t.equal(message, `tools must have at most ${mostTools} items`);
        const { messages, name } = MOST[contract];
        t.equal((await post({ tools: [route.tool('f'.repeat(name))] })).status, 200, 'a name of this length');
        const long = await post({ tools: [route.tool('f'.repeat(129))] });
        const says = new RegExp(`^tools\\[0\\].*name must have at most ${name} characters$`);
        t.match(refused(t, 'a name of 129 characters', long, 400, 'bad_request'), says);
        for (const [more, says] of route.past(messages))
          t.match(refused(t, String(says), await post(more), 400, 'bad_request'), says);
        refused(t, 'a body', await post({ user: 'u'.repeat(BODY_BYTES) }), 413, 'payload_too_large');
      });

      await t.test(`${path}: a refusal names the place and the well-known field`, async (t) => {
        const bad = (NAMED[contract].get(route) ?? []).map((row) => [row, 400, 'bad_request'] as const);
        const unheld = (UNHELD[contract].get(route) ?? []).map((row) => [row, 422, 'unprocessable'] as const);
        for (const [[more, says, param], status, code] of [...bad, ...unheld]) {
          const answer = await post(more);
          const message = refused(t, says, answer, status, code);
          t.equal(message.slice(0, says.length), says);
          t.equal(errorOf(answer).param, param, says);
          t.notOk(answer.raw.includes(CANARY), `${says}: no name that the caller chose`);
        }
      });

      if (contract === 'compatible' && route === CHAT) {
        await t.test(`${path}: continuous_usage_stats`, async (t) => {
          const usages = async (options: Fields): Promise<readonly (Usage | null | undefined)[]> => {
            const stream_options = { include_usage: true, ...options };
            const stream = await sidecar.post(path, chatBody('chat', 'everything', { stream: true, stream_options }));
            return frames(stream)
              .slice(0, -1)
              .map((data) => (JSON.parse(data) as { usage?: Usage | null }).usage);
          };
          const each = await usages({ continuous_usage_stats: true });
          const tokens = each.map((usage) => usage?.completion_tokens ?? NaN);
          t.ok(
            tokens.every((count, i) => count >= (tokens[i - 1] ?? 0)),
            `so far: ${tokens.join(', ')}`,
          );
          t.ok((tokens[0] ?? NaN) < 8 && tokens.at(-1) === 8);
          t.equal(new Set(each.map((usage) => usage?.prompt_tokens)).size, 1);
          t.equal((await usages({})).filter((usage) => usage).length, 1, 'in the last one alone unless asked for');
        });
      }

      if (contract === 'compatible') {
        await t.test(`${path}: half of an emoji in a tool’s result is read as U+FFFD`, async (t) => {
          const tokensOf = async (text: string): Promise<number> => {
            const answer = await post(route.result(text));
            t.equal(answer.status, 200);
            return route.usageOf(answer.body).prompt_tokens;
          };
          const replaced = await tokensOf('It is \ufffd');
          t.equal(await tokensOf('It is \ud83d'), replaced);
          t.ok(replaced > (await tokensOf('It is ')), 'it is not left out');
          t.ok((await tokensOf('It is\0It is')) > (await tokensOf('It is\0')), 'nothing behind a NUL is cut');
        });
      }

      await t.test(`${path}: nothing that the caller sent is kept`, async (t) => {
        const schema = { type: 'object', properties: { [canary()]: { type: 'string', description: canary() } } };
        const marked = { ...route.marked, tools: [route.tool(canary(), schema)] };
        const besides = contract === 'compatible' && route === CHAT ? [{ ...MARKED_BESIDES }] : [];
        for (const more of [marked, { ...marked, stream: true }, ...besides]) t.equal((await post(more)).status, 200);
        const wrong = { [canary()]: canary() };
        const answer = await post({ ...marked, ...wrong });
        refused(t, 'an unknown field', answer, 400, 'bad_request');
        const page = await (await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/metrics`)).text();
        const kept = [sidecar.lines, sidecar.spool.records].map((lines) => JSON.stringify(lines));
        const search = new LeakSearch([MARK]);
        for (const text of [...kept, page, answer.raw]) t.equal(search.find(text), undefined);
      });
    }

    await t.test('a key in x-api-key, and the version of the Messages API', async (t) => {
      const asked = { 'x-api-key': 'good', 'anthropic-version': '2023-06-01' };
      const list = await sidecar.ask('GET', '/v1/models', asked);
      t.equal(list.status, contract === 'strict' ? 401 : 200);
      t.equal(list.field('request-id') === undefined, contract === 'strict');
    });

    await t.test('the model list', async (t) => {
      const listed = { object: 'model', created: Number, owned_by: String };
      const described = (context: number): Fields => ({
        ...listed,
        context_length: context,
        context_window: context,
        max_model_len: context,
        max_input_tokens: context,
        max_output_tokens: context,
        max_tokens: context,
        meta: { n_ctx: context },
        architecture: { input_modalities: ['text'], output_modalities: ['text'] },
        pricing: { prompt: '0.00000015', completion: '0.0000006', input_cache_read: '0.000000075' },
      });
      const list = async (headers = {}): Promise<readonly Fields[]> => {
        const { body } = await sidecar.ask('GET', '/v1/models', { ...JSON_HEADERS, ...headers });
        return (JSON.parse(body) as { data: Fields[] }).data;
      };
      const [chat, ...others] = await list();
      t.strictSame(others, [], 'none of a cohort of others');
      t.match(chat, contract === 'strict' ? listed : described(16_384));
      if (contract === 'strict') {
        t.strictSame(Object.keys(chat ?? {}), ['id', ...Object.keys(listed)], 'no further field');
        return;
      }
      const can = chat?.['supported_parameters'] as string[];
      t.ok(can.includes('tools') && can.includes('reasoning'), 'its template has calls and thoughts');
      const early = key(sidecar, 'lists', { models: new Set(['kept']), cohort: 'early' });
      t.match(await list(early), [{ id: 'kept', ...described(1024) }]);
      const one = await sidecar.ask('GET', '/v1/models/chat', JSON_HEADERS);
      t.strictSame(JSON.parse(one.body), chat, 'one of them');
    });

    await t.test('a path that is not served names the one that is', async (t) => {
      for (const [path, says] of NOT_SERVED[contract]) {
        const answer = await sidecar.post(path, {});
        t.match(refusedBy(CHAT)(t, path, answer, 404, 'not_found'), says, path);
        t.notOk(answer.raw.includes(CANARY), path);
      }
      t.notOk(JSON.stringify(sidecar.lines).includes(CANARY), 'the log does not repeat such names either');
    });
  });
