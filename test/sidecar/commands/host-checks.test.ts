import { once } from 'node:events';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import type { StoredKey } from '../../../sidecar/access/key-file.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import {
  type Check,
  connectionsCheck,
  filesLimitCheck,
  guarded,
  hostChecks,
  httpCheck,
  nodeCheck,
  swapCheck,
} from '../../../sidecar/commands/host-checks.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import { lockDir } from '../../../sidecar/usage/lock.js';
import { testPair } from '../../support/certificates.js';
import { makeKey } from '../../support/keys.js';
import { shortDir } from '../../support/short-dir.js';

const [a, b] = [testPair('a'), testPair('b')];

/** The checks of a configuration, by their subject. */
async function checksOf(environment: Record<string, string>): Promise<ReadonlyMap<string, Check>> {
  const loaded = loadConfig({ RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0', ...environment });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return new Map((await hostChecks(loaded.config, systemClock)).map((check) => [check.what, check]));
}

t.test('the limit of open files', async (t) => {
  const limits = (soft: string): string =>
    `Max processes    1  1  processes\nMax open files            ${soft}  524288  files\n`;
  t.match(filesLimitCheck(limits('1024')), { level: 'warn', says: 'at most 1024', advice: /LimitNOFILE/ });
  t.match(filesLimitCheck(limits('4096')), { level: 'ok' });
  t.match(filesLimitCheck(limits('unlimited')), { level: 'ok' });
  t.match(filesLimitCheck(''), { level: 'ok' });
});

t.test('the connections that the limit of open files leaves', async (t) => {
  const loaded = loadConfig({ RA_LISTEN_MAX_CONNECTIONS: '5000' });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  t.match(connectionsCheck(loaded.config, 65_536), { level: 'ok', says: /^5000 at most/ });
  t.match(connectionsCheck(loaded.config, 4096), { level: 'fail', says: /LimitNOFILE/ });
});

t.test('a machine without problems, before a first start: nothing is created', async (t) => {
  const dir = t.testdir();
  const checks = await checksOf({ RA_DATA_DIR: join(dir, 'data') });
  t.strictSame(
    [...checks.values()].filter(({ level }) => level === 'fail'),
    [],
  );
  t.match(checks.get('usage spool'), { level: 'ok', says: /data\/usage can be written, .* free$/ });
  t.match(checks.get('public address'), { level: 'ok', says: '127.0.0.1:0, any free port' });
  t.match(checks.get('keys'), { level: 'ok', says: /serve creates one for development/ });
  t.match(checks.get('HTTP library'), { level: 'ok' });
  t.strictSame(readdirSync(dir), []);
});

t.test('the contract that is in force', async (t) => {
  const says = async (more: Record<string, string>): Promise<unknown> =>
    (await checksOf({ RA_DATA_DIR: join(t.testdir(), 'data'), ...more })).get('contract');
  t.match(await says({}), { level: 'ok', says: /^strict: .*; compatible accepts/ });
  t.match(await says({ RA_CONTRACT: 'compatible' }), { level: 'ok', says: /^compatible: .*POST \/v1\/responses$/ });
});

t.test('a check that fails is one more problem', async (t) => {
  const found = await guarded('disk', () => Promise.reject(new Error('EIO: i/o error, statfs')));
  t.strictSame(found, [{ what: 'disk', level: 'fail', says: 'the check itself failed: EIO: i/o error, statfs' }]);
});

t.test('addresses in use, by another program and by this sidecar', async (t) => {
  const dir = t.testdir({ data: { usage: {} } });
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const environment = { RA_DATA_DIR: join(dir, 'data'), RA_LISTEN_PORT: String(port) };
  const what = 'public address';
  t.match((await checksOf(environment)).get(what), { level: 'fail', says: /cannot be used \(EADDRINUSE\)/ });
  const locked = await lockDir(join(dir, 'data', 'usage'));
  t.match((await checksOf(environment)).get(what), { level: 'ok', says: /a sidecar runs on this data folder/ });
  if (locked.kind === 'locked') await locked.release();
  const nowhere = { ...environment, RA_LISTEN_HOST: '192.0.2.1' };
  t.match((await checksOf(nowhere)).get(what), { level: 'fail', advice: /another address/ });
});

t.test('folders that cannot be written, and disks without room', async (t) => {
  const dir = t.testdir({ file: '' });
  t.match((await checksOf({ RA_DATA_DIR: join(dir, 'file', 'data') })).get('usage spool'), { level: 'fail' });
  const room = { RA_DATA_DIR: dir, RA_USAGE_MIN_FREE_BYTES: String(Number.MAX_SAFE_INTEGER) };
  t.match((await checksOf(room)).get('usage spool'), { level: 'fail', advice: /usage\.minFreeBytes/ });
  const socket = { RA_DATA_DIR: dir, RA_LISTEN_SOCKET: '/nowhere-at-all/ra.sock' };
  t.match((await checksOf(socket)).get('socket'), { level: 'fail', says: /its folder cannot be written \(E[A-Z]+\)/ });
});

t.test('the path of a socket, as serve judges it', async (t) => {
  // A socket's path has at most 107 bytes.
  const dir = shortDir(t);
  writeFileSync(join(dir, 'file'), '');
  mkdirSync(join(dir, 'data', 'usage'), { recursive: true });
  const check = async (name: string): Promise<Check | undefined> =>
    (await checksOf({ RA_DATA_DIR: join(dir, 'data'), RA_LISTEN_SOCKET: join(dir, name) })).get('socket');
  t.match(await check('new'), { level: 'ok', says: /can be created/ });
  t.match(await check('file'), { level: 'fail', says: /a file that is not a socket/ });
  const server = createServer().listen(join(dir, 'taken'));
  await once(server, 'listening');
  t.teardown(() => void server.close());
  t.match(await check('taken'), { level: 'fail', says: /another process does/ });
  const locked = await lockDir(join(dir, 'data', 'usage'));
  t.match(await check('taken'), { level: 'ok', says: /a sidecar runs on this data folder/ });
  if (locked.kind === 'locked') await locked.release();
});

t.test('the certificate and its key', async (t) => {
  const check = async (key: string, cert: string): Promise<Check | undefined> =>
    (await checksOf({ RA_DATA_DIR: t.testdir(), RA_TLS_KEY_FILE: key, RA_TLS_CERT_FILE: cert })).get('certificate');
  t.match(await check(a.keyFile, a.certFile), { level: 'ok' });
  t.match(await check(b.keyFile, a.certFile), { level: 'fail', says: /is not the certificate of the key/ });
  t.match(await check('/nowhere', a.certFile), { level: 'fail', says: /does not exist/ });
});

/** A key for the environment `development`. */
function key(id: string, properties: Partial<StoredKey> = {}): StoredKey {
  return makeKey({ id, ...properties }).stored;
}
const NONE_WORKS = {
  level: 'warn',
  says: /^no key of .*elsewhere works in environment production, the one of this configuration \(2 for development only; 1 revoked, expired, frozen or without account\)$/,
  advice: /keys create --account A --environment production/,
};
const SOME_WORK = {
  level: 'ok',
  says: /^1 in .*some for environment production, 1 of them with token quotas, and 1 that do not work in it$/,
};

t.test('the files that the configuration names are read as the sidecar reads them', async (t) => {
  const secret = 'x'.repeat(40);
  const dir = t.testdir({
    keys: '{ hush',
    secret,
    short: 'hush',
    prices: '[hush',
    list: '[]',
    empty: '{"version":1,"keys":[]}',
  });
  mkdirSync(join(dir, 'data'));
  const named = (more: Record<string, string>): Promise<ReadonlyMap<string, Check>> =>
    checksOf({ RA_DATA_DIR: join(dir, 'data'), ...more });
  const bad = await named({
    RA_KEYS_FILE: join(dir, 'keys'),
    RA_GATEWAY_SECRET_FILE: join(dir, 'short'),
    RA_PRICING_FILE: join(dir, 'prices'),
    RA_CREDIT_FILE: join(dir, 'none'),
    RA_DELIVERY_SECRET_FILE: join(dir, 'none'),
  });
  for (const what of ['keys', 'gateway’s secrets', 'price list', 'credit', 'delivery’s secret'])
    t.match(bad.get(what), { level: 'fail', advice: /^fix the file/ }, what);
  t.notMatch(JSON.stringify([...bad.values()]), /hush/, 'nothing of their content is shown');
  t.match((await named({ RA_PRICING_FILE: join(dir, 'list') })).get('price list'), { level: 'fail' });
  t.match((await named({ RA_GATEWAY_SECRET_FILE: join(dir, 'secret') })).get('gateway’s secrets'), { level: 'ok' });
  const production = { RA_KEYS_FILE: join(dir, 'empty'), RA_ENVIRONMENT: 'production' };
  t.match((await named(production)).get('keys'), {
    level: 'warn',
    says: /no caller can authenticate/,
    advice: /keys create/,
  });
  for (const [name, keys, found] of [
    ['elsewhere', [key('a'), key('b', { revoked: '2026-01-01T00:00:00Z' }), key('c')], NONE_WORKS],
    ['some', [key('a'), key('d', { entitlements: { production: { models: 'all', tokensPerDay: 9 } } })], SOME_WORK],
    ['bare', [key('e', { entitlements: {} })], { level: 'warn', says: /\(1 for no environment only\)$/ }],
    ['made', [key('f', { development: true })], { level: 'warn', says: /^none in .*no caller can authenticate/ }],
  ] as const) {
    const file = join(dir, name);
    writeFileSync(file, JSON.stringify({ version: 1, keys }));
    t.match((await named({ ...production, RA_KEYS_FILE: file })).get('keys'), found, name);
    const here = (await named({ RA_KEYS_FILE: file })).get('keys');
    if (name === 'elsewhere') t.match(here, { level: 'ok', says: /^2 in .* for environment development, and 1 that/ });
    if (name === 'made') t.match(here, { level: 'ok', says: 'none yet; serve creates one for development' });
    if (name === 'bare') t.match(here, { level: 'warn', says: /; serve creates one for development$/ });
  }
});

t.test('a file with secrets that other users can read or write is reported', async (t) => {
  const dir = t.testdir({ keys: '{"version":1,"keys":[]}', secret: 'x'.repeat(40) });
  const files = async (mode: number): Promise<Check | undefined> => {
    for (const name of ['keys', 'secret']) chmodSync(join(dir, name), mode);
    const named = { RA_KEYS_FILE: join(dir, 'keys'), RA_GATEWAY_SECRET_FILE: join(dir, 'secret') };
    return (await checksOf({ RA_DATA_DIR: dir, ...named })).get('secret files');
  };
  t.equal(await files(0o640), undefined, 'its group may be the sidecar’s');
  // The last check of this name is that of the gateway's secrets.
  const secret = join(dir, 'secret');
  t.strictSame(await files(0o644), {
    what: 'secret files',
    level: 'warn',
    says: `${secret}: other users can read it (mode 0644)`,
    advice: `chmod o= ${secret}`,
  });
  t.match(await files(0o606), { says: /other users can read and write it \(mode 0606\)/ });
});

t.test('the files of traces, scrapers and a message bus are read too', async (t) => {
  const secret = 'x'.repeat(40);
  const dir = t.testdir({
    bad: 'hush hush\nhush',
    secret,
    headers: 'authorization: Bearer hush-hush\n',
    login: 'user:hush:hush',
    nkey: `SU${'A'.repeat(56)}`,
    creds: '-----BEGIN NATS USER JWT-----\nhush\n-----BEGIN USER NKEY SEED-----\nhush',
    pem: '-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----',
  });
  const of = async (what: string, named: Record<string, string>): Promise<Check | undefined> => {
    const check = (await checksOf({ RA_DATA_DIR: dir, ...named })).get(what);
    t.notMatch(JSON.stringify(check), /hush/, 'nothing of its content is shown');
    return check;
  };
  const path = (name: string): string => join(dir, name);
  for (const [what, variable, good] of [
    ['scrapers’ secrets', 'RA_FLEET_SCRAPE_SECRET_FILE', 'secret'],
    ['OTLP headers', 'RA_TELEMETRY_OTLP_HEADERS_FILE', 'headers'],
  ] as const) {
    t.equal(await of(what, {}), undefined, 'none is named');
    t.match(await of(what, { [variable]: path(good) }), { level: 'ok', says: `${path(good)} can be used` });
    for (const bad of ['bad', 'none']) t.match(await of(what, { [variable]: path(bad) }), { level: 'fail' }, what);
  }

  const what = 'delivery’s files';
  const nats = (auth: string, file: string, more: Record<string, string> = {}): Promise<Check | undefined> =>
    of(what, {
      RA_DELIVERY_NATS_SERVERS: '["nats://127.0.0.1:9"]',
      RA_DELIVERY_NATS_AUTH: auth,
      RA_DELIVERY_NATS_SECRET_FILE: path(file),
      ...more,
    });
  for (const [auth, good, holds] of [
    ['token', 'secret', /must contain one token and nothing else/],
    ['password', 'login', /must contain one line, user:password/],
    ['nkey', 'nkey', /must contain the seed of a user’s nkey/],
    ['creds', 'creds', /must contain a user’s JWT and seed/],
  ] as const) {
    t.match(await nats(auth, good), { level: 'ok', says: `${path(good)} can be used` }, auth);
    t.match(await nats(auth, 'bad'), { level: 'fail', says: holds, advice: /^fix the file/ }, auth);
    t.match(await nats(auth, 'none'), { level: 'fail', says: /^delivery\.nats\.secretFile: does not exist/ });
  }
  const tls = (name: string, file: string): Record<string, string> => ({
    RA_DELIVERY_NATS_TLS: 'true',
    RA_DELIVERY_NATS_CERT_FILE: path('pem'),
    RA_DELIVERY_NATS_KEY_FILE: path('pem'),
    [name]: path(file),
  });
  for (const [variable, key] of [
    ['RA_DELIVERY_NATS_CA_FILE', 'caFile'],
    ['RA_DELIVERY_NATS_CERT_FILE', 'certFile'],
    ['RA_DELIVERY_NATS_KEY_FILE', 'keyFile'],
  ] as const) {
    t.match(await nats('token', 'secret', tls(variable, 'pem')), { level: 'ok' });
    const says = new RegExp(`^delivery\\.nats\\.${key}: must be PEM`);
    t.match(await nats('token', 'secret', tls(variable, 'bad')), { level: 'fail', says });
  }
});

t.test('Node’s version against the package’s engines', async (t) => {
  for (const version of ['22.13.0', '22.23.3', '24.0.0', '24.21.0', '26.10.0'])
    t.match(nodeCheck(version), { level: 'ok' }, version);
  for (const version of ['18.20.0', '20.18.9', '22.12.0', '23.1.0', '25.0.0', '27.1.0'])
    t.match(
      nodeCheck(version),
      { level: 'fail', advice: /20\.19 or newer 20, or 22\.13 .*, or 24\.0 .*, or 26\.0/ },
      version,
    );
  const { engines } = JSON.parse(readFileSync('package.json', 'utf8')) as { engines: { node: string } };
  t.equal(engines.node, '^20.19.0 || ^22.13.0 || ^24.0.0 || ^26.0.0');
});

t.test('Node 20 is a warning: it gets no security updates', async (t) => {
  for (const version of ['20.19.0', '20.20.2'])
    t.match(nodeCheck(version), { level: 'warn', advice: /Node 24/ }, version);
});

t.test('the HTTP library loads', async (t) => {
  t.strictSame(await httpCheck(), { what: 'HTTP library', level: 'ok', says: 'uWebSockets.js loads' });
});

t.test('swap is a warning, unless the control group has none', async (t) => {
  const head = 'Filename\tType\tSize\tUsed\tPriority\n';
  t.match(swapCheck('', undefined), { level: 'ok' });
  t.strictSame(swapCheck(head, undefined), { what: 'swap', level: 'ok', says: 'none' });
  const device = `${head}/dev/sda2\tpartition\t1\t0\t-2\n`;
  t.match(swapCheck(device, undefined), { level: 'warn', advice: /MemorySwapMax=0/ });
  t.match(swapCheck(device, 'max\n'), { level: 'warn' });
  t.match(swapCheck(device, '0\n'), { level: 'ok' });
});
