/** Quotas of tokens over HTTP: many requests at once, the headers of each answer, and replies that end where no more is left. */
import t from 'tap';
import { PART_TOKENS } from '../../sidecar/api/usage-session.js';
import type { Caller } from '../../sidecar/access/identity.js';
import { errorOf } from '../support/error-answer.js';
import { ACME, chatBody, JSON_HEADERS, type InProcess } from '../support/in-process.js';
import { startPriced, usageOf, INPUT, OUTPUT } from '../support/priced-sidecar.js';
import type { RawResponse } from '../support/raw-http.js';
import { STUB_JOB, STUB_TOP_K } from '../support/stub-script.js';

const CHAT = '/v1/chat/completions';
const MODELS = [
  { id: 'chat', kind: 'chat', seats: 64, contextPerSeat: 2048 },
  { id: 'decide', kind: 'decision' },
] as const;

const sidecar = await startPriced(t, '1000', {
  models: MODELS,
  config: { contract: 'compatible', credit: {}, queue: { waitingPerSeat: 64 } },
});

/** A key with these properties. */
function key(name: string, more: Partial<Caller>, of: InProcess = sidecar): Record<string, string> {
  of.identity.answers.set(`Bearer ${name}`, { ...ACME, keyId: name, ...more });
  return { Authorization: `Bearer ${name}` };
}

interface Limit {
  readonly name: string;
  readonly scope: string;
  readonly limit: number;
  readonly remaining: number;
}

async function tokenLimits(headers: Record<string, string>): Promise<readonly Limit[]> {
  const { body } = await sidecar.ask('GET', '/v1/account', { ...JSON_HEADERS, ...headers });
  return (JSON.parse(body) as { limits: readonly Limit[] }).limits.filter(({ name }) => name.startsWith('tokens'));
}

/** Tokens of the prompt of {@link chatBody}. */
const PROMPT = usageOf(await sidecar.post(CHAT, chatBody('chat', 'grow', { max_tokens: 1 }))).prompt_tokens;

t.test('512 at once of four keys of one account: no quota is passed, and nothing stays reserved', async (t) => {
  const quotas = { tokensPerMinute: 40_000, tokensPerDay: 30_000, tokensPerMonth: 20_000 };
  const accountTokens = { tokensPerMinute: 70_000, tokensPerDay: 60_000, tokensPerMonth: 50_000 };
  const keys = ['a', 'b', 'c', 'd'].map((name) => key(name, { account: 'many', ...quotas, accountTokens }));
  const answers = await Promise.all(
    Array.from({ length: 512 }, async (_, i) => {
      const max_tokens = [1, 300, 700, 1500][i % 7] ?? 900;
      const of = i % keys.length;
      const body = chatBody('chat', 'grow', { max_tokens, stream: i % 2 === 0 });
      return { of, max_tokens, answer: await sidecar.post(CHAT, body, keys[of] ?? {}) };
    }),
  );
  const used = [0, 0, 0, 0];
  for (const close of sidecar.spool.records) {
    const of = ['a', 'b', 'c', 'd'].indexOf(close.keyId);
    if (close.kind === 'close' && of >= 0) used[of] = (used[of] ?? 0) + close.promptTokens + close.completionTokens;
  }
  const all = used.reduce((sum, each) => sum + each, 0);
  t.comment(`${used.join(', ')} tokens, ${answers.filter(({ answer }) => answer.status === 200).length} answered`);
  t.ok(used.every((tokens) => tokens > 0 && tokens <= 20_000));
  t.ok(all > 40_000 && all <= 50_000, 'nearly all of it was used');
  const statuses = new Set(answers.map(({ answer }) => (answer.status === 200 ? 200 : errorOf(answer).code)));
  t.same(
    [...statuses].sort(),
    [200, 'quota_exceeded'],
    answers.map(({ answer }) => answer.body).find((body) => body.includes('capacity')),
  );
  for (const { answer } of answers) {
    const left = Number(answer.field('x-ratelimit-remaining-tokens'));
    const limit = Number(answer.field('x-ratelimit-limit-tokens'));
    if (!(left >= 0 && left <= limit && [20_000, 30_000, 40_000, 50_000, 60_000, 70_000].includes(limit))) {
      t.fail(`${left} of ${limit}`);
    }
  }
  for (const [i, headers] of keys.entries()) {
    const limits = await tokenLimits(headers);
    const own = [40_000, 30_000, 20_000].map((limit) => limit - (used[i] ?? 0));
    const shared = [70_000, 60_000, 50_000].map((limit) => limit - all);
    t.same(
      limits.map(({ remaining }) => remaining),
      [...own, ...shared],
      'what is left is what was not billed',
    );
    const next = await sidecar.post(CHAT, chatBody('chat', 'grow', { max_tokens: 2000 }), headers);
    const least = Math.min(...own, ...shared);
    t.equal(next.status, least >= PROMPT + PART_TOKENS ? 200 : 429);
    if (next.status === 429) t.equal(next.field('x-ratelimit-remaining-tokens'), String(least));
    else break;
  }
});

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
