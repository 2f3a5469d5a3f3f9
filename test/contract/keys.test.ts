/** Keys and entitlements over HTTP, each state from a real keys file: answers and model lists. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { writeKeyFile, type StoredKey } from '../../sidecar/access/key-file.js';
import { WatchedKeys } from '../../sidecar/access/key-identity.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { chatBody, decisionBody, FakeIdentity, InProcess, systemOneBody } from '../support/in-process.js';
import { holdError } from '../support/error-answer.js';
import { makeKey } from '../support/keys.js';
import type { RawResponse } from '../support/raw-http.js';

const CHAT = '/v1/chat/completions';
const DECISIONS = '/v1/decisions';
const SYSTEMONE = '/v1/systemone';

const MODELS = [
  { id: 'open', kind: 'chat' },
  { id: 'gated', kind: 'chat', cohort: 'pilots' },
  { id: 'decide', kind: 'decision' },
  { id: 'gated-decide', kind: 'decision', cohort: 'pilots' },
] as const;

/** Complete bodies, written by hand; `SECONDS` stands for those of Retry-After. */
const BODIES = {
  invalid_api_key:
    '{"error":{"message":"The API key is missing, malformed or unknown. Send it as `Authorization: Bearer <API_KEY>`.","type":"authentication_error","code":"invalid_api_key","param":null}}',
  expired_api_key:
    '{"error":{"message":"The API key has expired. Use a current one.","type":"authentication_error","code":"expired_api_key","param":null}}',
  revoked_api_key:
    '{"error":{"message":"The API key was revoked. Use another one.","type":"authentication_error","code":"revoked_api_key","param":null}}',
  unattributed_key:
    '{"error":{"message":"The API key belongs to no account. Contact the operator of this service.","type":"permission_error","code":"unattributed_key","param":null}}',
  account_frozen:
    '{"error":{"message":"The account is frozen. Contact the operator of this service.","type":"permission_error","code":"account_frozen","param":null}}',
  model_not_entitled:
    '{"error":{"message":"The model is not served here, or this key may not call it. GET /v1/models lists those that it may call.","type":"permission_error","code":"model_not_entitled","param":"model"}}',
  decision_not_entitled:
    '{"error":{"message":"The model is not served here, or this key may not call it. The operator knows the ids of decision models.","type":"permission_error","code":"model_not_entitled","param":"model"}}',
  route_not_entitled:
    '{"error":{"message":"This key may not call this route. Use another key, or have this one entitled.","type":"permission_error","code":"model_not_entitled","param":null}}',
  not_in_cohort:
    '{"error":{"message":"The model is open to a cohort that this key is not part of. Ask the operator for access, or use another model.","type":"permission_error","code":"not_in_cohort","param":"model"}}',
  user_rate_limited:
    '{"error":{"message":"Too many requests, or too many with keys that fail. Please try again in SECONDSs.","type":"rate_limit_error","code":"user_rate_limited","param":null}}',
} as const;

/** A key that may call everything in `development`, except for `changes` of its entitlement there. */
function entitled(changes: object): ReturnType<typeof makeKey> {
  return makeKey({ entitlements: { development: { models: 'all', ...changes } } });
}

const KEYS = {
  good: makeKey(),
  expired: makeKey({ expires: '2026-01-02T00:00:00Z' }),
  revoked: makeKey({ revoked: '2026-01-02T00:00:00Z' }),
  orphan: makeKey(),
  frozen: makeKey({ account: 'icy' }),
  some: entitled({ models: ['open', 'none-such'] }),
  elsewhere: makeKey({ entitlements: { production: { models: 'all' } } }),
  pilot: entitled({ cohort: 'pilots' }),
  somePilot: entitled({ cohort: 'pilots', models: ['open'] }),
  talker: entitled({ routes: ['chat'] }),
  decider: entitled({ routes: ['decisions'] }),
} as const;
type Who = keyof typeof KEYS;

function withoutAccount({ id, hash, created, entitlements }: StoredKey): StoredKey {
  return { id, hash, created, entitlements };
}

/** A sidecar whose keys are those above, in a file. */
class Harness {
  readonly sidecar: InProcess;

  private constructor(sidecar: InProcess) {
    this.sidecar = sidecar;
  }

  static async start(t: Test, config: Readonly<Record<string, unknown>> = {}): Promise<Harness> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-keys-'));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const file = join(dir, 'keys.json');
    const { orphan, ...others } = KEYS;
    await writeKeyFile(file, {
      version: 1,
      accounts: { icy: { frozen: true } },
      keys: [...Object.values(others).map(({ stored }) => stored), withoutAccount(orphan.stored)],
    });
    const keys = await WatchedKeys.open(
      systemClock,
      { file, environment: 'development', pollMs: 60_000, development: false },
      { loaded: () => undefined, closed: () => undefined, refused: (problem) => t.fail(problem) },
    );
    t.teardown(() => keys.close());
    return new Harness(await InProcess.start(t, { models: MODELS, config, identity: new FakeIdentity(keys) }));
  }

  post(who: Who, path: string, body: unknown): Promise<RawResponse> {
    return this.sidecar.post(path, body, headersOf(who));
  }

  models(who: Who): Promise<RawResponse> {
    return this.sidecar.ask('GET', '/v1/models', headersOf(who));
  }

  /** Ids of the model list. */
  async list(who: Who): Promise<string[]> {
    const { body } = await this.models(who);
    return (JSON.parse(body) as { data: { id: string }[] }).data.map(({ id }) => id);
  }
}

function headersOf(who: Who): { readonly Authorization: string } {
  return { Authorization: `Bearer ${KEYS[who].key}` };
}

/** Checks an answer: its whole body, and the headers that belong to its code. `model`: that the request named. */
function hold(t: Test, name: string, response: RawResponse, status: number, body: keyof typeof BODIES): void {
  const { type, code, param } = (JSON.parse(BODIES[body]) as { error: { type: string; code: string; param: null } })
    .error;
  const seconds = response.field('retry-after') ?? '';
  t.equal(response.body, BODIES[body].replace('SECONDS', seconds), name);
  holdError(t, name, response, { status, type, code, param, retry: status === 429 });
}

/** The sidecar of all tests but the last. It does not count failed keys. */
const harness = await Harness.start(t, { keys: { failuresPerMinute: 0 } });

t.test('invalid keys, on every route', async (t) => {
  const ways: readonly (readonly [path: string, body: object])[] = [
    [CHAT, chatBody('open', 'echo')],
    [DECISIONS, decisionBody('decide')],
    [SYSTEMONE, systemOneBody('decide')],
  ];
  for (const [who, status, code] of [
    ['expired', 401, 'expired_api_key'],
    ['revoked', 401, 'revoked_api_key'],
    ['orphan', 403, 'unattributed_key'],
    ['frozen', 403, 'account_frozen'],
  ] as const) {
    for (const [path, body] of ways) hold(t, `${who} at ${path}`, await harness.post(who, path, body), status, code);
    hold(t, `${who} at /v1/models`, await harness.models(who), status, code);
  }
  for (const [path, body] of ways) t.equal((await harness.post('good', path, body)).status, 200, path);
  t.strictSame(await harness.list('good'), ['open']);
});

t.test('strings that are no valid key, in many spellings', async (t) => {
  const { sidecar } = harness;
  const { key } = KEYS.good;
  for (const value of [
    '',
    key,
    `Bearer ${key},${key}`,
    `Bearer ${key}%00`,
    `Bearer\u00a0${key}`,
    `Bearer ${'x'.repeat(3000)}`,
  ]) {
    const answer = await sidecar.ask('GET', '/v1/models', { Authorization: value });
    hold(t, JSON.stringify(value.slice(0, 60)), answer, 401, 'invalid_api_key');
  }
  hold(t, 'no header', await sidecar.ask('GET', '/v1/models', {}), 401, 'invalid_api_key');
  hold(t, 'in the query', await sidecar.ask('GET', `/v1/models?api_key=${key}`, {}), 401, 'invalid_api_key');
  const elsewhere = { 'X-Api-Key': key, 'Proxy-Authorization': `Bearer ${key}`, Cookie: `key=${key}` };
  hold(t, 'in other headers', await sidecar.ask('GET', '/v1/models', elsewhere), 401, 'invalid_api_key');
  for (const value of [
    `bearer   ${key}`,
    `Bearer ${key} `,
    // uWS strips bytes above ASCII from both ends of a value, as it does spaces; the rest must be the whole key.
    `Bearer ${key}\u200b`,
    `\ufeffBearer ${key}`,
  ])
    t.equal((await sidecar.ask('GET', '/v1/models', { Authorization: value })).status, 200, JSON.stringify(value));
});

t.test('entitlement by model, route and environment; the model list shows it', async (t) => {
  t.equal((await harness.post('some', CHAT, chatBody('open', 'echo'))).status, 200);
  t.strictSame(await harness.list('some'), ['open'], 'entitled to more than is hosted');
  for (const model of ['gated', 'none-such', 'never-heard-of', 'decide']) {
    const answer = await harness.post('some', CHAT, chatBody(model, 'echo'));
    hold(t, `not entitled to ${model}, or there is none`, answer, 403, 'model_not_entitled');
  }
  const decided = await harness.post('some', DECISIONS, decisionBody('decide'));
  hold(t, 'decisions', decided, 403, 'decision_not_entitled');
  const named = await harness.post('some', CHAT, chatBody(KEYS.good.key, 'echo'));
  hold(t, 'a key in place of the model is not repeated', named, 403, 'model_not_entitled');

  const elsewhere = await harness.post('elsewhere', CHAT, chatBody('open', 'echo'));
  hold(t, 'elsewhere', elsewhere, 403, 'model_not_entitled');
  t.strictSame(await harness.list('elsewhere'), [], 'an entitlement for production does not apply here');

  t.equal((await harness.post('talker', CHAT, chatBody('open', 'echo'))).status, 200);
  t.strictSame(await harness.list('talker'), ['open']);
  hold(t, 'chat alone', await harness.post('talker', DECISIONS, decisionBody('decide')), 403, 'route_not_entitled');
  hold(t, 'systemone', await harness.post('decider', SYSTEMONE, systemOneBody('decide')), 403, 'route_not_entitled');
  t.equal((await harness.post('decider', DECISIONS, decisionBody('decide'))).status, 200);
  hold(t, 'no chat', await harness.post('decider', CHAT, chatBody('open', 'echo')), 403, 'route_not_entitled');
  t.strictSame(await harness.list('decider'), [], 'a key without the chat route gets the list too');
});

t.test('a model of a cohort is listed for keys in it', async (t) => {
  hold(t, 'chat', await harness.post('good', CHAT, chatBody('gated', 'echo')), 403, 'not_in_cohort');
  hold(t, 'decisions', await harness.post('good', DECISIONS, decisionBody('gated-decide')), 403, 'not_in_cohort');
  t.strictSame(await harness.list('good'), ['open']);
  t.equal((await harness.post('pilot', CHAT, chatBody('gated', 'echo'))).status, 200);
  t.equal((await harness.post('pilot', DECISIONS, decisionBody('gated-decide'))).status, 200);
  t.strictSame(await harness.list('pilot'), ['open', 'gated']);
  const answer = await harness.post('somePilot', CHAT, chatBody('gated', 'echo'));
  hold(t, 'of the cohort, but not entitled', answer, 403, 'model_not_entitled');
  t.strictSame(await harness.list('somePilot'), ['open']);
});

t.test('failed keys are limited by address; a valid key is accepted', async (t) => {
  const harness = await Harness.start(t, { keys: { failuresPerMinute: 2 } });
  hold(t, 'the first', await harness.models('revoked'), 401, 'revoked_api_key');
  hold(t, 'the second', await harness.post('expired', CHAT, {}), 401, 'expired_api_key');
  for (const who of ['revoked', 'expired'] as const)
    hold(t, who, await harness.post(who, CHAT, chatBody('open', 'echo')), 429, 'user_rate_limited');
  const keyless = await harness.sidecar.ask('GET', '/v1/models', {});
  hold(t, 'no key', keyless, 429, 'user_rate_limited');
  const ms = Number(keyless.field('retry-after-ms'));
  t.ok(ms > 0 && ms <= 30_000, 'half a minute until the next');
  t.strictSame(await harness.list('good'), ['open']);
  hold(t, 'a frozen account', await harness.models('frozen'), 403, 'account_frozen');
  t.match(
    harness.sidecar.lines.filter(({ code }) => code === 'account_frozen').at(-1),
    { event: 'request', account: 'icy', keyId: KEYS.frozen.stored.id },
    'the log names the account and the key',
  );
});
