/** A gateway in front (docs/contract.md#who-is-calling), and requests that imitate one. */
import { join } from 'node:path';
import { writeFileSync } from 'node:fs';
import t from 'tap';
import { GatewayIdentity } from '../../sidecar/access/gateway-identity.js';
import { KeyFileIdentity } from '../../sidecar/access/key-identity.js';
import { SecretFile } from '../../sidecar/lib/secret-file.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { errorOf } from '../support/error-answer.js';
import { chatBody, decisionBody, FakeIdentity, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { makeKey } from '../support/keys.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';
import { shortDir } from '../support/short-dir.js';

const CHAT = '/v1/chat/completions';
const SECRET = 'gateway-secret'.padEnd(40, '-');

const GATEWAY = {
  'Content-Type': 'application/json',
  Authorization: `Bearer ${SECRET}`,
  'x-ra-account': 'globex',
  'x-ra-key-id': 'key_g',
  'x-ra-environment': 'development',
} as const;

t.test('a gateway', async (t) => {
  const dir = shortDir(t);
  writeFileSync(join(dir, 'secret'), SECRET);
  const secrets = await SecretFile.open(join(dir, 'secret'), systemClock, {
    changed: () => undefined,
    unusable: () => undefined,
  });
  t.teardown(() => secrets.close());
  const own = makeKey({ entitlements: { development: { models: ['one'] } } });
  const keys = new KeyFileIdentity({ version: 1, keys: [own.stored] }, 'development');
  const socket = join(dir, 'ra.sock');
  const sidecar = await InProcess.start(t, {
    models: [
      { id: 'one', kind: 'chat' },
      { id: 'two', kind: 'chat' },
      { id: 'decide', kind: 'decision' },
    ],
    config: { listen: { port: 0, socket } },
    identity: new FakeIdentity(
      new GatewayIdentity({ secrets, environment: 'development', class: 'standard', others: keys }),
    ),
  });
  const keyed = { ...JSON_HEADERS, Authorization: `Bearer ${own.key}` };
  const chat = (headers: Readonly<Record<string, string>>, model = 'one'): Promise<RawResponse> =>
    sidecar.ask('POST', CHAT, headers, JSON.stringify(chatBody(model, 'echo')));
  const listed = async (headers: Readonly<Record<string, string>>): Promise<string[]> => {
    const { status, body } = await sidecar.ask('GET', '/v1/models', headers);
    t.equal(status, 200);
    return (JSON.parse(body) as { data: { id: string }[] }).data.map(({ id }) => id);
  };
  /** The account and key of each usage record since the last call. */
  const charged = (): string[] => [
    ...new Set(sidecar.spool.records.splice(0).map(({ account, keyId }: UsageRecord) => `${account} ${keyId}`)),
  ];

  await t.test('a gateway names its caller, whose usage is recorded and whose key is not checked', async (t) => {
    const served = await chat(GATEWAY);
    t.equal(served.status, 200);
    t.match(
      served.field('server-timing'),
      /^ra-queue;dur=[\d.]+, ra-admit;dur=[\d.]+$/,
      'authorization is not timed here',
    );
    t.same(charged(), ['globex key_g']);
    const decided = await sidecar.ask('POST', '/v1/decisions', GATEWAY, JSON.stringify(decisionBody('decide')));
    t.equal(decided.status, 200);
    t.same(charged(), ['globex key_g']);
    t.match((await chat(keyed)).field('server-timing'), /^authorize;dur=/, 'a key of this sidecar is checked here');
    t.same(charged(), [`acme ${own.stored.id}`]);
  });

  await t.test('a gateway names the models: these are listed, others are refused', async (t) => {
    t.same(await listed(GATEWAY), ['one', 'two']);
    const some = { ...GATEWAY, 'x-ra-models': 'two, decide ,absent' };
    t.same(await listed(some), ['two']);
    t.equal((await chat(some, 'two')).status, 200);
    for (const model of ['one', 'absent', 'Two', 'two,decide', 'ｔwo']) {
      const refused = await chat(some, model);
      t.ok([400, 403].includes(refused.status), `${model}: ${refused.status}`);
    }
    t.same(charged(), ['globex key_g']);
  });

  await t.test(
    'a gateway without an account, with another environment or with malformed models is refused',
    async (t) => {
      for (const [headers, code] of [
        [{ 'x-ra-account': '' }, 'unattributed_key'],
        [{ 'x-ra-account': 'a b' }, 'unattributed_key'],
        [{ 'x-ra-account': 'globe\u0301x' }, 'unattributed_key'],
        [{ 'x-ra-account': 'glоbex' }, 'unattributed_key'],
        [{ 'x-ra-key-id': 'key\xffg' }, 'unattributed_key'],
        [{ 'x-ra-environment': 'production' }, 'model_not_entitled'],
        [{ 'x-ra-models': '' }, 'model_not_entitled'],
        [{ 'x-ra-models': 'one,on\u0301e' }, 'model_not_entitled'],
      ] as const) {
        const refused = await chat({ ...GATEWAY, ...headers });
        t.equal(refused.status, 403);
        t.equal(errorOf(refused).code, code, JSON.stringify(headers));
      }
      const { 'x-ra-account': account, ...rest } = GATEWAY;
      // Names that CGI would treat as equal are different headers here.
      t.equal(errorOf(await chat({ ...rest, x_ra_account: account })).code, 'unattributed_key');
      t.same(charged(), []);
    },
  );

  await t.test('a gateway may set a deadline', async (t) => {
    const late = await chat({ ...GATEWAY, 'x-ra-deadline-ms': '0' });
    t.equal(late.status, 504);
    t.equal(errorOf(late).code, 'timeout');
    t.ok(Number(late.field('retry-after')) >= 1);
    t.equal((await chat({ ...GATEWAY, 'x-ra-deadline-ms': '60000' })).status, 200);
    t.equal((await chat({ ...keyed, 'x-ra-deadline-ms': '0' })).status, 200, 'other callers may not');
  });

  await t.test('a request without the secret is not a gateway’s, whatever its headers', async (t) => {
    charged();
    const { Authorization: proof, 'Content-Type': type, ...claims } = GATEWAY;
    const spoofed = { ...keyed, ...claims, 'x-ra-models': 'one,two', 'x-ra-class': 'interactive' };
    t.equal((await chat(spoofed)).status, 200);
    t.same(charged(), [`acme ${own.stored.id}`], 'the account is that of the key');
    t.same(await listed(spoofed), ['one'], 'and so are the models');
    t.equal(errorOf(await chat(spoofed, 'two')).code, 'model_not_entitled');
    for (const authorization of [proof.slice(0, -1), `${proof}-`, proof.toUpperCase(), SECRET, `Basic ${SECRET}`, '']) {
      const refused = await chat({ 'Content-Type': type, ...claims, Authorization: authorization });
      t.equal(refused.status, 401, authorization);
    }
    t.equal((await chat({ 'Content-Type': type, ...claims, 'X-Authorization': proof })).status, 401);
  });

  await t.test('a gateway’s header that occurs twice is refused, since one may be the caller’s', async (t) => {
    charged();
    const lines = (headers: Readonly<Record<string, string>>): string =>
      Object.entries(headers)
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join('');
    const body = JSON.stringify(chatBody('one', 'echo'));
    for (const twice of [
      ...['x-ra-account: acme', 'X-RA-Account: globex', 'x-ra-key-id: other', 'x-ra-models: one\r\nx-ra-models: two'],
      ...['x-ra-deadline-ms: 1\r\nX-Ra-Deadline-Ms: 100000', `authorization: Bearer ${own.key}`],
      `Authorization: ${GATEWAY.Authorization}`,
    ]) {
      for (const fields of [`${lines(GATEWAY)}${twice}\r\n`, `${twice}\r\n${lines(GATEWAY)}`]) {
        const caller = await sidecar.connect();
        caller.send(`POST ${CHAT} HTTP/1.1\r\nHost: a\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`);
        const refused = await caller.response();
        t.equal(refused.status, 400, twice);
        t.notMatch(refused.body, /globex|acme|secret/);
        t.equal(await caller.rest(), '', 'and the connection is closed');
      }
    }
    t.same(charged(), []);
  });

  await t.test('the same over a Unix socket', async (t) => {
    charged();
    const body = JSON.stringify(chatBody('one', 'echo'));
    for (const [headers, status] of [
      [GATEWAY, 200],
      [keyed, 200],
      [{ ...GATEWAY, Authorization: 'Bearer x' }, 401],
    ] as const) {
      const caller = await RawConnection.open(socket);
      t.equal((await caller.request('POST', CHAT, headers, body).response()).status, status);
      caller.close();
    }
    t.same(charged(), ['globex key_g', `acme ${own.stored.id}`], 'a connection to the socket alone grants nothing');
  });
});
