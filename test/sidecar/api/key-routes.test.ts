/** Keys, accounts and grants by HTTP, on real files. */
import { open, readdir, readFile, writeFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { appendAudit, audited, AuditError } from '../../../sidecar/access/audit.js';
import { hashKey, readKeyFile, writeKeyFile } from '../../../sidecar/access/key-file.js';
import { KeyStore } from '../../../sidecar/access/keys.js';
import { CreditLedger } from '../../../sidecar/access/credit.js';
import { makeKey } from '../../support/keys.js';
import { emptyKeys, KeyOperator, OPERATOR } from '../../support/key-operator.js';

interface Line {
  readonly at: string;
  readonly operator: string;
  readonly action: string;
  readonly id: string;
  readonly changes: Readonly<Record<string, unknown>>;
  readonly error?: string;
}

async function auditOf(dir: string): Promise<Line[]> {
  const text = await readFile(join(dir, 'audit.jsonl'), 'utf8').catch(() => '');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}

t.test('a key’s life: created, changed, rotated, revoked; each change has its line', async (t) => {
  const dir = await emptyKeys(t.testdir());
  const operator = await KeyOperator.start(t, dir);
  const created = await operator.post('/keys', { account: 'acme', class: 'batch', limits: { chat: { inFlight: 2 } } });
  t.equal(created.status, 201);
  t.equal(created.headers.get('cache-control'), 'no-store');
  const { key, id } = created.body;
  t.match(key, /^ra-key-[\w-]{43}$/);
  t.match(created.body, { account: 'acme', state: 'good', class: 'batch', limits: { chat: { inFlight: 2 } } });
  t.strictSame(created.body.entitlements, { development: { models: 'all' } }, 'as `keys create` does it');
  t.equal(created.body.hash, undefined);
  t.equal((await readKeyFile(join(dir, 'keys.json'))).keys[0]?.hash, hashKey(key));

  const changed = await operator.patch(id, {
    class: 'interactive',
    limits: { chat: { perMinute: 60 }, models: { perMinute: 5 } },
    entitlements: { development: { models: ['a'], tokensPerDay: 1000 }, production: { models: [] } },
    expires: '2099-01-01T00:00:00Z',
  });
  t.equal(changed.status, 200);
  t.match(changed.body, {
    class: 'interactive',
    limits: { chat: { inFlight: 2, perMinute: 60 }, models: { perMinute: 5 } },
    entitlements: { development: { models: ['a'], tokensPerDay: 1000 }, production: { models: [] } },
  });
  const cleared = await operator.patch(id, {
    expires: null,
    limits: { models: null },
    entitlements: { development: { tokensPerDay: null }, production: null },
  });
  t.strictSame(cleared.body.limits, { chat: { inFlight: 2, perMinute: 60 } });
  t.strictSame(cleared.body.entitlements, { development: { models: ['a'] } });
  t.equal(cleared.body.expires, undefined);

  const rotated = await operator.post(`/keys/${id}/rotate`, { graceMs: 60_000 });
  t.equal(rotated.status, 201);
  t.not(rotated.body.key, key);
  t.match(rotated.body, { account: 'acme', class: 'interactive', state: 'good' });
  t.match(await operator.post(`/keys/${id}/rotate`), { status: 422, body: { error: { message: /rotated before/ } } });
  const revoked = await operator.post(`/keys/${rotated.body.id}/revoke`);
  t.match(revoked, { status: 200, body: { state: 'revoked' } });
  t.strictSame((await operator.post(`/keys/${rotated.body.id}/revoke`)).body, revoked.body, 'again: the same, no line');
  t.match(await operator.post(`/keys/${rotated.body.id}/rotate`), { status: 422 });

  const lines = await auditOf(dir);
  t.strictSame(
    lines.map(({ operator: by, action, id: of }) => [
      by,
      action,
      of === id ? 'old' : of === rotated.body.id ? 'new' : of,
    ]),
    [
      [OPERATOR, 'create', 'old'],
      [OPERATOR, 'change', 'old'],
      [OPERATOR, 'change', 'old'],
      [OPERATOR, 'rotate', 'old'],
      [OPERATOR, 'revoke', 'new'],
    ],
  );
  t.match(lines[0]?.changes, { account: 'acme', class: 'batch' });
  t.match(lines[1]?.changes, { class: 'interactive', limits: { chat: { perMinute: 60 } } });
  t.match(lines[3]?.changes, { by: rotated.body.id, expires: /Z$/ });
  for (const line of lines) t.ok(Math.abs(Date.parse(line.at) - Date.now()) < 600_000);
  for (const name of await readdir(dir)) {
    const text = await readFile(join(dir, name), 'utf8');
    for (const secret of [key, rotated.body.key]) t.notOk(text.includes(secret.slice('ra-key-'.length)), name);
  }
});

t.test('what the schema of the keys file or the routes refuse changes nothing', async (t) => {
  const { stored } = makeKey({ id: 'k', weight: 4, limits: { decisions: { inFlight: 1, perMinute: 2 } } });
  const dir = t.testdir();
  await emptyKeys(dir);
  await writeKeyFile(join(dir, 'keys.json'), { version: 1, keys: [stored] });
  const operator = await KeyOperator.start(t, dir);
  const before = await readFile(join(dir, 'keys.json'), 'utf8');
  const { key } = makeKey();
  const pasted = key.replace('ra-test-', 'ra-key-');
  const cases: [method: string, path: string, body: unknown, status: number, error: object][] = [
    ['POST', '/keys', {}, 400, { param: 'account', message: /is required/ }],
    ['POST', '/keys', { account: '' }, 400, { param: 'account', message: /must not be empty/ }],
    ['POST', '/keys', { account: 'a\u200b' }, 400, { param: 'account' }],
    [
      'POST',
      '/keys',
      { account: 'a', hash: 'x' },
      400,
      { message: /takes expires, class, weight, limits, entitlements/ },
    ],
    ['POST', '/keys', { account: 'a', class: 'gold' }, 400, { param: 'class', message: /must be one of interactive/ }],
    ['POST', '/keys', { account: 'a', class: 'batch', weight: 4 }, 400, { message: /a class and a weight/ }],
    ['POST', '/keys', { account: 'a', expires: '2020-01-01T00:00:00Z' }, 400, { param: 'expires', message: /past/ }],
    ['POST', '/keys', { account: 'a', expires: '2099-02-30T00:00:00Z' }, 400, { message: /does not exist/ }],
    ['POST', '/keys', { account: 'a', entitlements: { 'A b': { models: 'all' } } }, 400, { param: 'entitlements' }],
    ['POST', '/keys', { account: pasted }, 400, { message: /has a key or a secret in it/ }],
    ['POST', '/keys', { account: `x_${pasted}` }, 400, { message: /has a key or a secret in it/ }],
    ['POST', `/accounts/_${pasted}/freeze`, {}, 400, { message: /has a key or a secret in it/ }],
    ['POST', '/keys', '[]', 400, { message: /must be an object/ }],
    ['POST', '/keys', '{"account":"a","account":"b"}', 400, { message: /has a name twice/ }],
    ['POST', '/keys', '{', 400, { message: /is no JSON/ }],
    ['POST', '/keys', { account: 'a'.repeat(40_000) }, 413, {}],
    ['PATCH', '/keys/k', {}, 400, { message: /names nothing/ }],
    ['PATCH', '/keys/k', { account: 'b' }, 400, { message: /takes expires/ }],
    ['PATCH', '/keys/k', { revoked: null }, 400, {}],
    ['PATCH', '/keys/k', { limits: { chat: { inFlight: -1 } } }, 400, { param: 'limits.chat.inFlight' }],
    ['PATCH', '/keys/k', { limits: { gold: {} } }, 400, { param: 'limits.gold' }],
    ['PATCH', '/keys/k', '{"entitlements":{"__proto__":{"models":"all"}}}', 400, { param: 'entitlements' }],
    ['PATCH', '/keys/k', { entitlements: { development: { models: null } } }, 400, { message: /models is required/ }],
    ['PATCH', '/keys/nobody', { class: 'batch' }, 404, { message: /no key with this id/ }],
    ['PATCH', '/keys/k/x', { class: 'batch' }, 404, {}],
    ['PATCH', '/keys/%', { class: 'batch' }, 404, {}],
    ['POST', '/keys/nobody/revoke', {}, 404, {}],
    ['POST', '/keys/nobody/rotate', {}, 404, {}],
    ['POST', '/keys/k/rotate', { graceMs: -1 }, 400, { param: 'graceMs' }],
    ['POST', '/keys/k/rotate', { grace: '1d' }, 400, { message: /takes graceMs/ }],
    ['POST', '/keys/k/revoke', { id: 'k' }, 400, { message: /takes no field/ }],
    ['POST', '/keys/k/other', {}, 405, {}],
    ['DELETE', '/keys/k', undefined, 405, {}],
    ['POST', '/accounts/nobody/freeze', {}, 404, { message: /no such account/ }],
    ['POST', '/accounts/acme/grants', { id: 'g', usd: '1' }, 404, { message: /no credit.file/ }],
    ['GET', '/keys?limit=501', undefined, 400, { param: 'limit' }],
    ['GET', '/keys?limit=1&limit=2', undefined, 400, { param: 'limit' }],
    ['GET', '/keys?secret=1', undefined, 400, {}],
    ['GET', '/keys?after=nobody', undefined, 404, {}],
  ];
  for (const [method, path, body, status, error] of cases) {
    const answer = await operator.ask(method, path, body);
    t.match(answer, { status, body: { error } }, `${method} ${path} ${JSON.stringify(body)}`);
    t.notOk(JSON.stringify(answer.body).includes(pasted));
  }
  const secret = 'the-"operator\\\'s-secret-of-32-characters';
  for (const [path, account] of [
    ['/keys', `of ${secret}`],
    [`/accounts/${encodeURIComponent(secret)}/freeze`, undefined],
  ] as const) {
    const answer = await operator.ask('POST', path, { account }, { authorization: `Bearer ${secret}` });
    t.match(answer, { status: 400, body: { error: { message: /has a key or a secret in it/ } } });
  }
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'])
    t.match(await operator.ask('POST', '/keys', '{"account":"a"}', { 'content-type': type }), { status: 415 }, type);
  t.equal(await readFile(join(dir, 'keys.json'), 'utf8'), before);
  t.strictSame(await auditOf(dir), []);
  t.match(await operator.patch('k', { class: 'batch', limits: { chat: { perMinute: 9 } } }), {
    status: 200,
    body: {
      class: 'batch',
      weight: undefined,
      limits: { decisions: { inFlight: 1, perMinute: 2 }, chat: { perMinute: 9 } },
    },
  });
});

t.test('keys are listed by account, in pages, with the state and the balance of their accounts', async (t) => {
  const dir = t.testdir();
  await emptyKeys(dir);
  const keys = ['b', 'a', 'b', 'a', 'c'].map((account, i) => makeKey({ id: `k${i}`, account }).stored);
  await writeKeyFile(join(dir, 'keys.json'), { version: 1, accounts: { a: { frozen: true } }, keys });
  const credit = new CreditLedger(new Map([['b', 2_500_000_000_000n]]));
  credit.open(new Map([['b', 500_000_000_000n]]));
  const totals = {
    sums: { readOn: () => Promise.resolve() },
    days: ['2026-01-02', '2026-01-03'],
    rowsOfKey: (...of: string[]) => (String(of) === '2026-01-02,b,k2' ? [{}] : []),
  };
  const operator = await KeyOperator.start(t, dir, { services: { credit, totals: (() => totals) as never } });
  const first = await operator.ask('GET', '/keys?limit=3');
  t.strictSame(
    first.body.data.map(({ id }) => id),
    ['k1', 'k3', 'k0'],
  );
  t.match(first.body, { keys: 5, hasMore: true, environment: 'development', credit: false });
  t.match(first.body.accounts, [
    { account: 'a', frozen: true, balance: { granted: '0', available: '0' } },
    { account: 'b', frozen: false, balance: { granted: '2.5', available: '2' } },
  ]);
  const second = await operator.ask('GET', `/keys?limit=3&after=k0`);
  t.match(second.body, {
    hasMore: false,
    data: [
      { id: 'k2', lastUsed: '2026-01-02' },
      { id: 'k4', lastUsed: null },
    ],
  });
  for (const [limit, hasMore] of [
    [4, true],
    [5, false],
  ] as const)
    t.match((await operator.ask('GET', `/keys?limit=${limit}`)).body, { hasMore });
  t.strictSame((await operator.ask('GET', '/keys?account=c')).body.data.length, 1);
  const none = await operator.ask('GET', '/keys?limit=0');
  t.equal(none.body.data, undefined, 'only what is in force');
  t.notOk(JSON.stringify([first, second]).includes(keys[0]?.hash ?? ''));
});

t.test('accounts are frozen and opened; a grant’s id is used once', async (t) => {
  const dir = t.testdir();
  await emptyKeys(dir);
  const account = 'ac me/é';
  await writeKeyFile(join(dir, 'keys.json'), { version: 1, keys: [makeKey({ id: 'k', account }).stored] });
  let read = 0;
  const grants = { inForce: { sign: '' }, reload: () => Promise.resolve(void (read += 1)) };
  const operator = await KeyOperator.start(t, dir, { services: { grants } });
  const path = `/accounts/${encodeURIComponent(account)}`;
  t.match(await operator.post(`${path}/freeze`), { status: 200, body: { account, frozen: true } });
  t.match((await operator.ask('GET', '/keys')).body.data, [{ id: 'k', state: 'frozen' }]);
  const quotas = { tokensPerMinute: 100, tokensPerMonth: 5000 };
  t.match(await operator.ask('PATCH', path, quotas), { status: 200, body: { account, frozen: true, quotas } });
  t.match(await operator.ask('PATCH', path, { tokensPerMonth: 0 }), {
    status: 400,
    body: { error: { param: 'tokensPerMonth', message: /at least 1/ } },
  });
  t.match(await operator.ask('PATCH', path, { tokens: 1 }), {
    status: 400,
    body: { error: { message: /takes frozen, tokensPerMinute, tokensPerDay, tokensPerMonth/ } },
  });
  t.match((await operator.ask('PATCH', path, { tokensPerMonth: null })).body.quotas, { tokensPerMinute: 100 });
  t.match((await operator.ask('GET', '/keys')).body.accounts, [{ account, quotas: { tokensPerMinute: 100 } }]);
  t.match(await operator.post(`${path}/unfreeze`), { status: 200, body: { account, frozen: false } });
  t.match((await operator.ask('GET', '/keys')).body.data, [{ id: 'k', state: 'good' }]);

  t.match(await operator.post(`${path}/grants`, { id: 'inv-1', usd: '25.00' }), {
    status: 201,
    body: { account, id: 'inv-1', usd: '25.00' },
  });
  t.equal(read, 1, 'the credit file is read before the answer');
  t.match(await operator.post('/accounts/other/grants', { id: 'inv-1', usd: '1' }), {
    status: 409,
    body: { error: { code: 'idempotency_key_reused', param: 'id' } },
  });
  t.equal((await operator.post('/accounts/other/grants', { id: 'inv-2', usd: '-0.5' })).status, 201);
  for (const usd of ['1,5', 'NaN', '0.0000000000001', '1e3', 1])
    t.match(await operator.post(`${path}/grants`, { id: 'inv-3', usd }), {
      status: 400,
      body: { error: { param: 'usd' } },
    });
  t.match(JSON.parse(await readFile(join(dir, 'credit.json'), 'utf8')), {
    version: 1,
    accounts: { [account]: [{ id: 'inv-1', usd: '25.00', at: /Z$/ }], other: [{ id: 'inv-2', usd: '-0.5' }] },
  });
  t.strictSame(
    (await auditOf(dir)).map(({ action, id, changes }) => [action, id, changes]),
    [
      ['freeze', account, { frozen: true }],
      ['change-account', account, quotas],
      ['change-account', account, { tokensPerMonth: null }],
      ['unfreeze', account, { frozen: null }],
      ['grant', 'inv-1', { account, usd: '25.00' }],
      ['grant', 'inv-2', { account: 'other', usd: '-0.5' }],
    ],
  );
});

t.test('a file of any size is changed; a large one in a thread', async (t) => {
  const dir = t.testdir();
  await emptyKeys(dir);
  const keys = Array.from({ length: 600 }, (_, i) => makeKey({ id: `k${i}` }).stored);
  await writeKeyFile(join(dir, 'keys.json'), { version: 1, keys });
  const operator = await KeyOperator.start(t, dir);
  t.match(await operator.patch('k7', { class: 'batch' }), { status: 200, body: { class: 'batch' } });
  t.match(await operator.ask('GET', '/keys?limit=1&after=k6'), {
    body: { data: [{ id: 'k7', class: 'batch' }], keys: 600 },
  });
  t.match(await operator.patch('none', { class: 'batch' }), { status: 404 });
  t.match(await auditOf(dir), [{ action: 'change', id: 'k7' }]);
});

t.test('changes that cannot be recorded or made are refused with their reason, and nothing is half done', async (t) => {
  const dir = t.testdir({ 'audit.jsonl': {} });
  await emptyKeys(dir);
  const operator = await KeyOperator.start(t, dir);
  const before = await readFile(join(dir, 'keys.json'), 'utf8');
  t.match(await operator.post('/keys', { account: 'a' }), {
    status: 422,
    body: { error: { message: /^Nothing was changed: .*audit\.jsonl cannot be written: EISDIR$/ } },
  });
  t.equal(await readFile(join(dir, 'keys.json'), 'utf8'), before, 'no change without its line');
  t.strictSame((await readdir(dir)).sort(), ['audit.jsonl', 'credit.json', 'keys.json'], 'neither draft nor lock');
  await writeFile(join(dir, 'keys.json'), '{');
  t.match(await operator.post('/keys', { account: 'a' }), {
    status: 422,
    body: { error: { message: /^Nothing was changed: keys: is not JSON/ } },
  });
  t.match(await operator.ask('GET', '/keys'), {
    status: 422,
    body: { error: { message: /^The keys cannot be listed: keys: is not JSON/ } },
  });
});

t.test('a line is synced before its change is made', async (t) => {
  const dir = await emptyKeys(t.testdir());
  const operator = await KeyOperator.start(t, dir);
  const handle = await open(join(dir, 'keys.json'));
  const proto = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
  const seen: string[] = [];
  // eslint-disable-next-line @typescript-eslint/unbound-method -- called with its object below
  const { appendFile, sync } = proto;
  t.teardown(() => void Object.assign(proto, { appendFile, sync }));
  proto.appendFile = async function append(...given) {
    await appendFile.apply(this, given);
    seen.push('appended');
  };
  proto.sync = async function synced() {
    await sync.call(this);
    seen.push(`synced, ${(await readKeyFile(join(dir, 'keys.json'))).keys.length} keys`);
  };
  await operator.post('/keys', { account: 'a' });
  seen.length = 0;
  await operator.post('/keys', { account: 'b' });
  t.strictSame(seen, ['synced, 1 keys', 'appended', 'synced, 1 keys', 'synced, 2 keys'], 'draft, line, folder');
});

t.test('the audit is bounded, and a line that a crash cut off spoils no other', async (t) => {
  const file = join(t.testdir(), 'data', 'audit.jsonl');
  const line = { at: '', operator: '', action: 'a', id: 'i', changes: {} };
  await appendAudit(file, line);
  const size = (await readFile(file)).length;
  await writeFile(file, '{"cut', { flag: 'a' });
  await appendAudit(file, line);
  const texts = (await readFile(file, 'utf8')).split('\n');
  t.strictSame([texts[0], texts[1], texts[2], texts[3]], [JSON.stringify(line), '{"cut', JSON.stringify(line), '']);
  await t.rejects(appendAudit(file, line, 3 * size), AuditError);
  const accents = { ...line, id: 'é'.repeat(10) };
  await t.rejects(appendAudit(file, accents, 3 * size + 9 + 8), AuditError, 'of bytes, not of characters');
  t.equal((await readFile(file, 'utf8')).split('\n').length, 4, 'a full file is left as it is');
});

t.test('a change that fails behind its line has a second one with the reason', async (t) => {
  const dir = t.testdir();
  const by = { operator: OPERATOR, action: 'change' };
  const full = Object.assign(new Error('full'), { code: 'ENOSPC', syscall: 'rename' });
  const change = audited(join(dir, 'audit.jsonl'), by, async (note) => {
    await note({ id: 'k', changes: { class: 'batch' } });
    throw full;
  });
  await t.rejects(change, full);
  const [line, failed, ...others] = await auditOf(dir);
  t.match(line, { ...by, id: 'k', error: undefined });
  t.strictSame([failed, others], [{ ...line, error: 'the file cannot be written: ENOSPC' }, []]);
});

t.test('as many changes as there are wait for each other; further ones are told to come again', async (t) => {
  const dir = await emptyKeys(t.testdir());
  const operator = await KeyOperator.start(t, dir);
  const asked = Array.from({ length: 120 }, (_, i) => operator.post('/keys', { account: `a${i}` }));
  const answers = await Promise.all(asked);
  const made = answers.filter(({ status }) => status === 201).length;
  t.ok(made >= 32 && made < answers.length, `${made} were made`);
  for (const answer of answers.filter(({ status }) => status !== 201)) {
    t.match(answer, { status: 429, body: { error: { code: 'capacity_exceeded' } } });
    t.ok(answer.headers.get('retry-after'));
  }
  t.equal((await readKeyFile(join(dir, 'keys.json'))).keys.length, made);
  t.equal((await auditOf(dir)).length, made);
});

t.test('two operators and the command at once on one key: nothing is lost, all is recorded', async (t) => {
  const [one, two, keysDir] = [t.testdir({ one: {}, two: {}, keys: {} })].flatMap((dir) => [
    join(dir, 'one'),
    join(dir, 'two'),
    join(dir, 'keys'),
  ]) as [string, string, string];
  const file = join(keysDir, 'keys.json');
  await writeKeyFile(file, { version: 1, keys: [makeKey({ id: 'k' }).stored, makeKey({ id: 'r' }).stored] });
  const here = await KeyOperator.start(t, one, { keysFile: file });
  const { at: there, child } = await KeyOperator.fork(two, file);
  t.teardown(() => void child.kill('SIGKILL'));
  const store = new KeyStore(file);
  const rounds = 12;
  const changes = async (operator: KeyOperator, group: string): Promise<void> => {
    for (let i = 1; i <= rounds; i += 1)
      t.equal((await operator.patch('k', { limits: { [group]: { perMinute: i } } })).status, 200);
  };
  const created: string[] = [];
  const [a, b] = await Promise.all([
    here.post('/keys/r/rotate', {}),
    there.post('/keys/r/rotate', {}),
    changes(here, 'chat'),
    changes(there, 'models'),
    (async () => {
      for (let i = 0; i < rounds; i += 1) {
        const entitlements = { development: { models: 'all' } } as const;
        created.push((await store.create({ account: 'cli', entitlements })).id);
      }
    })(),
  ]);
  t.strictSame([a.status, b.status].sort(), [201, 422], 'one rotation takes place');
  const { keys } = await readKeyFile(file);
  t.strictSame(keys.find(({ id }) => id === 'k')?.limits, {
    chat: { perMinute: rounds },
    models: { perMinute: rounds },
  });
  t.equal(keys.length, 2 + 1 + rounds);
  for (const id of created) t.ok(keys.some((key) => key.id === id));
  const lines = [...(await auditOf(one)), ...(await auditOf(two))];
  t.equal(lines.length, 2 * rounds + 1);
});
