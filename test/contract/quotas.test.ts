/** Quotas of tokens over HTTP: many requests at once, the headers of each answer, and replies that end where no more is left. */
import t from 'tap';
import { PART_TOKENS } from '../../sidecar/api/usage-session.js';
import type { Caller } from '../../sidecar/access/identity.js';
import { RequestLimits } from '../../sidecar/access/limits.js';
import { QuotaLedger, type QuotaLeft } from '../../sidecar/access/quotas.js';
import type { LimitLeft } from '../../sidecar/domain/limit-left.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { errorOf } from '../support/error-answer.js';
import { ACME, chatBody, decisionBody, JSON_HEADERS, type InProcess } from '../support/in-process.js';
import { rounds } from '../support/long-form.js';
import { startPriced, usageOf, INPUT, OUTPUT } from '../support/priced-sidecar.js';
import type { RawResponse } from '../support/raw-http.js';
import { STUB_JOB, STUB_TOP_K } from '../support/stub-script.js';

const CHAT = '/v1/chat/completions';
const MODELS = [
  { id: 'chat', kind: 'chat', seats: 64, contextPerSeat: 2048 },
  { id: 'decide', kind: 'decision' },
] as const;

/** All of the requests may wait, however slow the machine is. */
const QUEUE = { waitingPerSeat: 64, maxWaitMs: 600_000 };

const sidecar = await startPriced(t, '1000', {
  models: MODELS,
  config: { contract: 'compatible', credit: {}, queue: QUEUE },
});

/** A key with these properties. */
function key(name: string, more: Partial<Caller>, of: InProcess = sidecar): Record<string, string> {
  of.identity.answers.set(`Bearer ${name}`, { ...ACME, keyId: name, ...more });
  return { Authorization: `Bearer ${name}` };
}

interface Limit {
  readonly name: string;
  readonly scope: string;
  readonly routes: string | null;
  readonly limit: number;
  readonly remaining: number;
}

/** Of the account's page, those whose name begins so. */
async function limitsNamed(start: string, headers: Record<string, string>): Promise<readonly Limit[]> {
  const { body } = await sidecar.ask('GET', '/v1/account', { ...JSON_HEADERS, ...headers });
  return (JSON.parse(body) as { limits: readonly Limit[] }).limits.filter(({ name }) => name.startsWith(start));
}

const tokenLimits = (headers: Record<string, string>): Promise<readonly Limit[]> => limitsNamed('tokens', headers);

/** Tokens of the prompt of {@link chatBody}. */
const PROMPT = usageOf(await sidecar.post(CHAT, chatBody('chat', 'grow', { max_tokens: 1 }))).prompt_tokens;

/** The quotas of each answer, as the ledger had them when its headers were written, by account. */
const told = new Map<string, QuotaLeft[]>();
// eslint-disable-next-line @typescript-eslint/unbound-method -- called with its object below
const { left: leftOf } = QuotaLedger.prototype;
QuotaLedger.prototype.left = function left(caller) {
  const all = leftOf.call(this, caller);
  told.set(caller.account, [...(told.get(caller.account) ?? []), ...all]);
  return all;
};
/** The same of the requests of a minute. */
const toldRequests = new Map<string, LimitLeft[]>();
// eslint-disable-next-line @typescript-eslint/unbound-method -- called with its object below
const { remaining: remainingOf } = RequestLimits.prototype;
RequestLimits.prototype.remaining = function remaining(caller, group) {
  const left = remainingOf.call(this, caller, group);
  if (left) toldRequests.set(caller.account, [...(toldRequests.get(caller.account) ?? []), left]);
  return left;
};
// Other test files share this process.
t.teardown(() => {
  QuotaLedger.prototype.left = leftOf;
  RequestLimits.prototype.remaining = remainingOf;
});

/** Requests at once; the long form has so many against each quota. */
const MANY = 512;
const FEW = rounds({ short: 64, long: MANY });
/** Tokens of the quota for each request: fewer than a prompt and a part of its reply, so some are refused at once. */
const TOKENS_EACH = 40;
const LENGTHS = [1, 300, 700, 1500];

/** `many` requests at once, whole ones and streams, and the codes of their errors. */
async function askAtOnce(
  many: number,
  keys: readonly Record<string, string>[],
  of = sidecar,
): Promise<(RawResponse & { code: string })[]> {
  return Promise.all(
    Array.from({ length: many }, async (_, i) => {
      const body = chatBody('chat', 'grow', { max_tokens: LENGTHS[i % 7] ?? 900, stream: i % 2 === 0 });
      const answer = await of.post(CHAT, body, keys[i % keys.length] ?? {});
      return Object.assign(answer, { code: answer.status === 200 ? '' : errorOf(answer).code });
    }),
  );
}

/** The closing records of an account. */
function closesOf(account: string, { spool }: InProcess = sidecar): readonly UsageRecord[] {
  return spool.records.filter((record) => record.kind === 'close' && record.account === account);
}

// test/sidecar/access/quotas.test.ts has all of them.
for (const [scope, name, many] of [
  ['key', 'tokensPerDay', MANY],
  ['account', 'tokensPerMonth', FEW],
] as const)
  t.test(`${many} at once against ${name} of the ${scope}: it is used up, not passed, and told exactly`, async (t) => {
    const account = `${scope}-${name}`;
    const most = many * TOKENS_EACH;
    const limit = { [name]: most };
    const own = { account, ...(scope === 'key' ? limit : { accountTokens: limit }) };
    const keys = (scope === 'key' ? ['one'] : ['a', 'b', 'c', 'd']).map((id) => key(`${account}-${id}`, own));
    const answers = await askAtOnce(many, keys);
    const used = closesOf(account).reduce((sum, close) => sum + close.promptTokens + close.completionTokens, 0);
    t.ok(used <= most && used > most - PROMPT - PART_TOKENS, `${used} tokens`);
    t.same([...new Set(answers.map(({ code }) => code))].sort(), ['', 'quota_exceeded']);
    const written = answers.map((answer) => [
      Number(answer.field('x-ratelimit-limit-tokens')),
      Number(answer.field('x-ratelimit-remaining-tokens')),
    ]);
    t.same(
      written.map(String).sort(),
      (told.get(account) ?? []).map((each) => `${each.limit},${each.remaining}`).sort(),
    );
    for (const headers of keys) t.match(await tokenLimits(headers), [{ scope, limit: most, remaining: most - used }]);
    const next = await sidecar.post(CHAT, chatBody('chat', 'grow', { max_tokens: 2000 }), keys[0]);
    t.equal(next.status, 429);
    const words =
      /^Of the quota of (this key|the account of this key), \d+ tokens in a (day|month), too few .* begins .*Please try again in \d+s\.$/;
    t.match(errorOf(next).message, words);
    t.equal(next.field('x-ratelimit-remaining-tokens'), String(most - used), 'nothing stays reserved');
  });

t.test(`${FEW} at once on all routes: the headers of each answer are what the ledgers had then`, async (t) => {
  const account = 'all-routes';
  const perMinute = Math.floor(FEW / 8);
  const limits = { chat: { perMinute }, decisions: { perMinute } };
  const headers = key(account, { account, limits, tokensPerDay: FEW * TOKENS_EACH });
  const chat = { model: 'chat', max_tokens: 300, messages: [{ role: 'user', content: 'Hello.' }] };
  const asks: readonly (readonly [path: string, body: object])[] = [
    [CHAT, chatBody('chat', 'echo')],
    [CHAT, chatBody('chat', 'grow', { max_tokens: 300, stream: true })],
    ['/v1/messages', { ...chat, top_k: STUB_TOP_K + STUB_JOB.echo }],
    ['/v1/messages', { ...chat, stream: true }],
    ['/v1/responses', { model: 'chat', input: 'Hello.', max_output_tokens: 300 }],
    ['/v1/responses', { model: 'chat', input: 'Hello.', stream: true }],
    ['/v1/decisions', decisionBody('decide')],
    [CHAT, chatBody('chat', 'grow', { unknown: 1 })],
  ];
  const written = await Promise.all(
    Array.from({ length: FEW }, async (_, i) => {
      const [path, body] = asks[i % asks.length] as (typeof asks)[number];
      const answer = await sidecar.post(path, body, headers);
      return ['requests', 'tokens'].map((of) =>
        ['limit', 'remaining'].map((what) =>
          Number(
            answer.field(path === '/v1/messages' ? `anthropic-ratelimit-${of}-${what}` : `x-ratelimit-${what}-${of}`),
          ),
        ),
      );
    }),
  );
  const all = (of: 0 | 1): string[] => written.map((pairs) => String(pairs[of])).sort();
  const had = (ledger: readonly LimitLeft[] = []): string[] =>
    ledger.map(({ limit, remaining }) => `${limit},${remaining}`).sort();
  t.same(all(0), had(toldRequests.get(account)), 'requests of a minute');
  t.same(all(1), had(told.get(account)), 'tokens');
  t.ok(new Set(all(0)).size > 2 && new Set(all(1)).size > 2, 'they change meanwhile');
});

t.test(`credit in parts: ${FEW} at once pass no balance, and nothing stays reserved`, async (t) => {
  const granted = FEW * TOKENS_EACH * OUTPUT;
  const paid = await startPriced(
    t,
    String(granted / 1e12),
    { models: MODELS, config: { contract: 'compatible', queue: QUEUE } },
    'parts',
  );
  const owner = key('owner', { usage: 'account' }, paid);
  const balance = async (): Promise<Record<string, string>> => {
    const { body } = await paid.ask('GET', '/v1/account', { ...JSON_HEADERS, ...owner });
    return (JSON.parse(body) as { balance: Record<string, string> }).balance;
  };
  const answers = await askAtOnce(FEW, [owner], paid);
  t.same([...new Set(answers.map(({ code }) => code))].sort(), ['', 'insufficient_credit']);
  const spent = closesOf(ACME.account, paid).reduce((sum, { price }) => sum + Number(price?.picodollars), 0);
  const { reserved, settled, available } = await balance();
  t.equal(reserved, '0');
  t.equal(Math.round(Number(settled) * 1e12), spent);
  const leftOver = Math.round(Number(available) * 1e12);
  t.equal(leftOver, granted - spent);
  t.ok(leftOver >= 0 && leftOver < PROMPT * INPUT + PART_TOKENS * OUTPUT, 'nearly all of it was used');
});

t.test(
  'a reply that its credit does not cover ends where that ends, and is refused where whole ones are reserved',
  async (t) => {
    const usd = String((PROMPT * INPUT + 300 * OUTPUT) / 1e12);
    for (const reserve of ['parts', 'whole'] as const) {
      const paid = await startPriced(t, usd, { models: MODELS, config: { contract: 'compatible' } }, reserve);
      const limited = key('limited', { tokensPerDay: 5000 }, paid);
      const answer = await paid.post(CHAT, chatBody('chat', 'grow', { max_tokens: 1000 }), limited);
      if (reserve === 'whole') {
        t.equal(errorOf(answer).code, 'insufficient_credit');
        t.equal(answer.field('x-ratelimit-remaining-tokens'), '5000', 'its tokens were returned before its answer');
      } else
        t.match(JSON.parse(answer.body), { choices: [{ finish_reason: 'length' }], usage: { completion_tokens: 300 } });
    }
  },
);

t.test('each answer tells what is left of the quota that has least, as the account’s page does', async (t) => {
  const headers = key('told', { account: 'told', tokensPerDay: 900, accountTokens: { tokensPerMinute: 1500 } });
  const left = (answer: RawResponse): string[] =>
    ['limit', 'remaining'].map((what) => answer.field(`x-ratelimit-${what}-tokens`) ?? '');
  const reserved = PROMPT + PART_TOKENS;
  const whole = await sidecar.post(CHAT, chatBody('chat', 'grow', { max_tokens: 10 }), headers);
  const after = 900 - PROMPT - 10;
  t.same(left(whole), ['900', String(after)]);
  const held = await sidecar.begin(CHAT, chatBody('chat', 'begun', { max_tokens: 1000, stream: true }), headers);
  await held.until('begun');
  t.same(left(await sidecar.post(CHAT, chatBody('chat', 'grow', { tools: 1 }), headers)), [
    '900',
    String(after - reserved),
  ]);
  t.match(await tokenLimits(headers), [{ remaining: after - reserved }, { scope: 'account', limit: 1500 }]);
  held.close();
  await sidecar.until('ra_sidecar_cancels_total{model="chat",phase="decoding"}', 1);
  const [day] = await tokenLimits(headers);
  t.equal(day?.remaining, after - PROMPT - 1, 'a caller that leaves gives back what it did not use');
  const messages = [{ role: 'user', content: 'a '.repeat(800) }];
  const large = await sidecar.post(CHAT, chatBody('chat', 'grow', { messages }), headers);
  t.match(errorOf(large), {
    code: 'bad_request',
    message: /more tokens than the quota of this key, 900 tokens in a day/,
  });
  t.equal(large.field('retry-after'), undefined, 'no wait would help');
});

/** Tokens of a quota that a prompt, a part of its reply and some of the next one use up. */
const ALL = PROMPT + PART_TOKENS + 144;

t.test('a reply whose next part is refused gets the tokens that are left, and is billed for them', async (t) => {
  let cuts = 0;
  const ask = (path: string, body: object): Promise<RawResponse> =>
    sidecar.post(path, body, key('cut', { account: `cut-${(cuts += 1)}`, tokensPerDay: ALL }));
  /** Tokens of the reply that ended last. */
  const replied = (): number => {
    const close = sidecar.spool.records.filter(({ kind }) => kind === 'close').at(-1);
    const { promptTokens = 0, completionTokens = 0, outcome, price } = close ?? {};
    t.equal(promptTokens + completionTokens, ALL);
    t.equal(outcome, 'done');
    t.equal(Number(price?.picodollars), promptTokens * INPUT + completionTokens * OUTPUT);
    return completionTokens;
  };
  const chat = { max_tokens: 1000, stream_options: { include_usage: true } };
  const whole = await ask(CHAT, chatBody('chat', 'grow', { max_tokens: 1000 }));
  t.match(JSON.parse(whole.body), {
    choices: [{ message: { content: ' grown grown' }, finish_reason: 'length' }],
    usage: { prompt_tokens: PROMPT, completion_tokens: replied() },
  });
  const stream = await ask(CHAT, chatBody('chat', 'grow', { ...chat, stream: true }));
  t.match(
    stream.body,
    /"delta":\{"content":" grown"\}.*\n\ndata: \{.*"delta":\{\},.*"finish_reason":"length"\}.*\n\ndata: \{.*"choices":\[\],.*\n\ndata: \[DONE\]\n\n/,
  );
  replied();

  const input = { model: 'chat', input: 'Hello.', max_output_tokens: 1000 };
  const response = await ask('/v1/responses', input);
  t.match(JSON.parse(response.body), {
    status: 'incomplete',
    incomplete_details: { reason: 'max_output_tokens' },
    usage: { output_tokens: replied() },
  });
  t.match((await ask('/v1/responses', { ...input, stream: true })).body, /event: response.incomplete\ndata: .*\n\n/);
  replied();

  const message = {
    model: 'chat',
    top_k: STUB_TOP_K + STUB_JOB.grow,
    max_tokens: 1000,
    messages: [{ role: 'user', content: 'Hello.' }],
  };
  const answered = await ask('/v1/messages', message);
  t.match(JSON.parse(answered.body), { stop_reason: 'max_tokens', usage: { output_tokens: replied() } });
  t.match(
    (await ask('/v1/messages', { ...message, stream: true })).body,
    /"stop_reason":"max_tokens".*\n\nevent: message_stop\ndata: \{"type":"message_stop"\}\n\n/,
  );
  replied();
});

t.test(`${FEW} at once against the limits of requests: none is passed, and no place stays taken`, async (t) => {
  const most = FEW / 2;
  const minute = key('minute', { account: 'minute', limits: { chat: { perMinute: most } } });
  const answers = await Promise.all(
    Array.from({ length: FEW }, () => sidecar.post(CHAT, chatBody('chat', 'echo'), minute)),
  );
  t.equal(answers.filter(({ status }) => status === 200).length, most);
  t.ok(answers.every((answer) => answer.status === 200 || errorOf(answer).code === 'user_rate_limited'));
  const limitsOfChat = async (headers: Record<string, string>): Promise<readonly Limit[]> =>
    (await limitsNamed('requests', headers)).filter(({ routes }) => routes === 'chat');
  t.match(await limitsOfChat(minute), [{ name: 'requests_per_minute', limit: most, remaining: 0 }]);

  const held = key('held', { account: 'held', limits: { chat: { inFlight: 8 } } });
  const streams = await Promise.all(
    Array.from({ length: FEW }, () => sidecar.begin(CHAT, chatBody('chat', 'begun', { stream: true }), held)),
  );
  const begun = streams.map((stream) =>
    stream.until('begun').then(
      () => true,
      () => false,
    ),
  );
  t.equal((await Promise.all(begun)).filter(Boolean).length, 8);
  t.match(await limitsOfChat(held), [{ name: 'requests_in_flight', limit: 8, remaining: 0 }]);
  for (const stream of streams) stream.close();
  await sidecar.until('http_server_active_requests{http_request_method="POST",url_scheme="http"}', 0);
  t.match(await limitsOfChat(held), [{ name: 'requests_in_flight', limit: 8, remaining: 8 }]);
});
