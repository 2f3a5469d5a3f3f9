/** Keys over HTTP on the operators’ listener: who may change them, from when a change is in force, and what is left of a key. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createHash } from 'node:crypto';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import t, { type Test } from 'tap';
import { keyRoutes } from '../../sidecar/api/key-routes.js';
import { operatorsOpenApi } from '../generate/operators-openapi.js';
import { errorOf } from '../support/error-answer.js';
import { chatBody, InProcess } from '../support/in-process.js';
import { rounds } from '../support/long-form.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';

const CHAT = '/v1/chat/completions';
const SECRETS = ['o'.repeat(40), 'n'.repeat(40)] as const;
const JSON_TYPE = { 'Content-Type': 'application/json' };

/** The published document, as far as it is read here. */
interface Described {
  readonly paths: Readonly<Record<string, Readonly<Record<string, { readonly requestBody?: DescribedBody }>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, { readonly properties?: object }>> };
}
interface DescribedBody {
  readonly content: { readonly 'application/json': { readonly schema: { readonly $ref: string } } };
}
const described = operatorsOpenApi() as Described;
const published = new Ajv2020({ strict: false, logger: false }).addSchema(described, 'openapi');

/** Each route, with a name in its path. */
const OPERATIONS = Object.entries(described.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { requestBody }]) => ({ path, method, hasBody: requestBody !== undefined })),
);

/** They need a store: store-keys.test.ts. */
const OF_STORE = ['/prices', '/replicas', '/replicas/{id}/write-off'];

const checks = new Map<string, ValidateFunction>();

/** The check of a part of an operation that is JSON. Throws if the document has no such part. */
function checkOf({ path, method }: { path: string; method: string }, part: string): ValidateFunction {
  const at = ['paths', path, method, ...part.split(' '), 'content', 'application/json', 'schema'];
  const pointer = at.map((each) => each.replaceAll('~', '~0').replaceAll('/', '~1')).join('/');
  const found = checks.get(pointer) ?? published.compile({ $ref: encodeURI(`openapi#/${pointer}`) });
  checks.set(pointer, found);
  return found;
}

class Operators {
  readonly sidecar: InProcess;
  readonly #t: Test;

  private constructor(sidecar: InProcess, t: Test) {
    this.sidecar = sidecar;
    this.#t = t;
  }

  static async start(t: Test, withSecret = true, more: object = {}): Promise<Operators> {
    const dir = t.testdir({ 'operators.txt': `${SECRETS.join('\n')}\n`, 'credit.json': '{"version":1,"accounts":{}}' });
    const sidecar = await InProcess.start(t, {
      models: [{ id: 'm', kind: 'chat' }],
      followsKeys: true,
      config: {
        dataDir: join(dir, 'data'),
        credit: { file: join(dir, 'credit.json') },
        operators: { port: 0, ...(withSecret && { secretFile: join(dir, 'operators.txt') }) },
        cors: { origins: ['*'] },
        ...more,
      },
    });
    return new Operators(sidecar, t);
  }

  async ask(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    body?: string,
  ): Promise<RawResponse> {
    const connection = await RawConnection.open(this.sidecar.app.operatorsPort);
    const response = await connection.request(method, path, headers, body).response();
    connection.close();
    this.#conforms(method, path, response);
    return response;
  }

  /** Each answer to a route of the document is one that it describes. */
  #conforms(method: string, path: string, { status, body }: RawResponse): void {
    const route = OPERATIONS.find((each) => {
      const pattern = new RegExp(`^${each.path.replace(/\{\w+\}/, '[^/]+')}$`);
      return each.method === method.toLowerCase() && pattern.test(path.split('?')[0] ?? '');
    });
    if (!route) return;
    const check = checkOf(route, `responses ${status}`);
    if (!check(JSON.parse(body))) this.#t.fail(`${method} ${path}: ${status} ${JSON.stringify(check.errors)}`);
  }

  /** With a secret and JSON. */
  send(method: string, path: string, body: object = {}, secret: string = SECRETS[0]): Promise<RawResponse> {
    return this.ask(method, path, { ...JSON_TYPE, Authorization: `Bearer ${secret}` }, JSON.stringify(body));
  }

  /** The status of a chat with a key. */
  async chat(key: string): Promise<string> {
    const answer = await this.sidecar.post(CHAT, chatBody('m', 'echo'), { Authorization: `Bearer ${key}` });
    return answer.status === 200 ? 'served' : errorOf(answer).code;
  }
}

t.test('each change is in force when its answer is sent', async (t) => {
  const operators = await Operators.start(t);
  const created = await operators.send('POST', '/keys', { account: 'acme' });
  t.equal(created.status, 201);
  t.equal(created.field('cache-control'), 'no-store');
  t.equal(created.field('content-type'), 'application/json');
  t.equal(created.field('access-control-allow-origin'), undefined);
  const { key, id } = JSON.parse(created.body) as { key: string; id: string };
  t.match(
    created.body,
    /^\{"key":"ra-key-[\w-]{43}","id":"key_[\w-]{12}","created":"[\d:.TZ-]+","account":"acme","entitlements":\{"development":\{"models":"all"\}\},"state":"good"\}$/,
  );
  t.equal(await operators.chat(key), 'served');
  const changed = await operators.send('PATCH', `/keys/${id}`, { entitlements: { development: { models: [] } } });
  t.equal(changed.status, 200);
  t.equal(await operators.chat(key), 'model_not_entitled');
  await operators.send('PATCH', `/keys/${id}`, { entitlements: { development: { models: 'all' } } });
  t.equal(await operators.chat(key), 'served');
  t.equal((await operators.send('POST', '/accounts/acme/freeze')).status, 200);
  t.equal(await operators.chat(key), 'account_frozen');
  t.equal((await operators.send('POST', '/accounts/acme/unfreeze')).status, 200);
  const rotated = await operators.send('POST', `/keys/${id}/rotate`);
  t.equal(rotated.status, 201);
  const next = JSON.parse(rotated.body) as { key: string; id: string };
  t.equal(await operators.chat(key), 'revoked_api_key');
  t.equal(await operators.chat(next.key), 'served');
  const granted = await operators.send('POST', '/accounts/acme/grants', { id: 'inv-1', usd: '2.5' });
  t.equal(granted.status, 201);
  t.equal(
    granted.body,
    '{"id":"inv-1","usd":"2.5","account":"acme","frozen":false,"quotas":{},"balance":{"granted":"2.5","available":"2.5"}}',
  );
  const twice = await operators.send('POST', '/accounts/acme/grants', { id: 'inv-1', usd: '2.5' });
  t.equal(twice.status, 409);
  t.equal(twice.field('cache-control'), 'no-store');
  t.equal(
    twice.body,
    '{"error":{"message":"There is a grant with this id already; nothing was granted.","type":"invalid_request_error","code":"idempotency_key_reused","param":"id"}}',
  );
  t.equal((await operators.send('POST', `/keys/${next.id}/revoke`, {}, SECRETS[1])).status, 200);
  t.equal(await operators.chat(next.key), 'revoked_api_key');
  const listed = await operators.send('GET', '/keys');
  t.match(JSON.parse(listed.body), { keys: 2, data: [{ id }, { id: next.id, state: 'revoked' }] });

  const audit = await readFile(join(operators.sidecar.dir, 'audit.jsonl'), 'utf8');
  const names = SECRETS.map((secret) => createHash('sha256').update(secret).digest('hex').slice(0, 8));
  const lines = audit
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { operator: string; action: string });
  t.strictSame(
    lines.map(({ operator, action }) => `${names.indexOf(operator)} ${action}`),
    ['0 create', '0 change', '0 change', '0 freeze', '0 unfreeze', '0 rotate', '0 grant', '1 revoke'],
  );
  const written = [JSON.stringify(operators.sidecar.lines), listed.body, changed.body];
  for (const name of await readdir(operators.sidecar.dir, { recursive: true }))
    written.push(await readFile(join(operators.sidecar.dir, name), 'latin1').catch(() => ''));
  for (const secret of [key.slice(7), next.key.slice(7), ...SECRETS])
    t.notOk(written.some((text) => text.includes(secret)));
});

t.test('without a secret, from a page of another origin or with another type nothing is changed', async (t) => {
  const [open, closed] = [await Operators.start(t, false), await Operators.start(t)];
  const routes = OPERATIONS.filter(({ path, hasBody }) => hasBody && !OF_STORE.includes(path)).flatMap(
    ({ method, path }) =>
      ['', '/admin'].map((at) => [method.toUpperCase(), at + path.replace(/\{\w+\}/, 'k')] as const),
  );
  t.equal(routes.length, 2 * 8);
  const body = '{"account":"acme"}';
  for (const [method, path] of routes) {
    const local = await open.ask(method, path, JSON_TYPE, body);
    t.equal(local.status, 404);
    t.equal(
      local.body,
      '{"error":{"message":"Keys, prices, credit and replicas are managed over HTTP only where operators.secretFile is set. Set it and restart the sidecar, or use `ra-sidecar keys`, `prices`, `credit` or `replicas`.","type":"invalid_request_error","code":"not_found","param":null}}',
    );
    t.equal((await open.ask(method, path, { ...JSON_TYPE, Host: 'attacker.example' }, body)).status, 400, 'rebinding');
    for (const headers of [{}, { Authorization: 'Bearer wrong' }, { Authorization: `Basic ${SECRETS[0]}` }]) {
      const refused = await closed.ask(method, path, { ...JSON_TYPE, ...headers, Host: 'attacker.example' }, body);
      t.equal(refused.status, 401, path);
      t.equal(refused.field('www-authenticate'), 'Bearer');
      t.equal(refused.field('cache-control'), 'no-store');
    }
    const preflight = await closed.ask('OPTIONS', path, {
      Origin: 'https://attacker.example',
      'Access-Control-Request-Method': method,
      'Access-Control-Request-Headers': 'authorization,content-type',
    });
    t.notMatch(preflight.raw, /access-control-allow/i, 'a browser sends nothing after that');
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', '']) {
      const Authorization = `Bearer ${SECRETS[0]}`;
      const refused = await closed.ask(method, path, { Authorization, ...(type && { 'Content-Type': type }) }, body);
      t.equal(refused.status, 415, `${path} ${type}`);
    }
    t.equal((await closed.sidecar.ask(method, path, JSON_TYPE, body)).status, 404, 'not on the public listener');
  }
  t.equal((await closed.ask('GET', '/keys', {})).status, 401);
  t.match(JSON.parse((await open.ask('GET', '/keys', {})).body), { keys: 0, data: undefined });
  for (const { sidecar } of [open, closed])
    t.notOk((await readdir(sidecar.dir)).some((name) => /^(keys\.json|audit\.jsonl)$/.test(name)));
});

/** The fields of a route's bodies. */
function fieldsOf({ path, method }: { path: string; method: string }): string[] {
  const { paths, components } = described;
  const name = paths[path]?.[method]?.requestBody?.content['application/json'].schema.$ref.split('/').at(-1) ?? '';
  return Object.keys(components.schemas[name]?.properties ?? {});
}

/** Values for each field: some are right in some fields. */
const PROBES = [-1, 0, 1, 1.5, '', 'x', '1.5', null, true, [], {}];
/** A right body of each route, but for the fields that a probe sets. */
const RIGHT: Readonly<Record<string, object>> = {
  'post /keys': { account: 'acme' },
  'patch /keys/{id}': { expires: '2099-01-01T00:00:00Z' },
  'patch /accounts/{name}': { frozen: false },
  'post /accounts/{name}/grants': { id: 'g', usd: '1' },
};

t.test('the routes are those of the OpenAPI document, and refuse the bodies that it does not describe', async (t) => {
  const operators = await Operators.start(t);
  const served = keyRoutes({ config: {} as never, services: () => ({}) as never, operatorOf: () => undefined });
  const methodsOf = (routes: Readonly<Record<string, object>>): object =>
    Object.fromEntries(Object.entries(routes).map(([path, of]) => [path, Object.keys(of).join(' ').toLowerCase()]));
  t.strictSame(methodsOf(described.paths), methodsOf(served));

  const { id } = JSON.parse((await operators.send('POST', '/keys', { account: 'acme' })).body) as { id: string };
  const pathOf = (path: string): string => path.replace('{id}', id).replace('{name}', 'acme');
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
      if (method.toLowerCase() in methods) continue;
      t.equal((await operators.send(method, pathOf(path))).status, 405, `${method} ${path}`);
    }
  }
  for (const route of OPERATIONS.filter(({ path, hasBody }) => hasBody && !OF_STORE.includes(path))) {
    const name = `${route.method} ${route.path}`;
    const check = checkOf(route, 'requestBody');
    const fields = fieldsOf(route);
    const right = RIGHT[name] ?? {};
    t.ok(check(right), name);
    const bodies: object[] = [right, { ...right, outside: 1 }, []];
    for (const field of fields) for (const probe of PROBES) bodies.push({ ...right, [field]: probe });
    for (const body of bodies) {
      const { status } = await operators.send(route.method.toUpperCase(), pathOf(route.path), body);
      t.equal(status !== 400, check(body), `${name} ${JSON.stringify(body)}: ${status}`);
    }
  }
  await writeFile(join(operators.sidecar.dir, 'keys.json'), '{');
  t.equal((await operators.send('GET', '/keys')).status, 422);
});

t.test('a wrong secret at the health route, which needs none, is counted and logged as well', async (t) => {
  const operators = await Operators.start(t);
  const ask = (secret: string): Promise<RawResponse> =>
    operators.ask('GET', '/readyz', { Authorization: `Bearer ${secret}` });
  const wrong = `${SECRETS[0].slice(0, 39)}x`;
  // Twice the limit's burst, since it gives one back each second meanwhile.
  for (let i = 0; i < 120; i += 1) {
    const answer = await ask(wrong);
    t.equal(answer.status, 200);
    t.notMatch(answer.body, /reasons/);
  }
  t.match(
    operators.sidecar.lines.filter(({ event }) => event === 'operators: wrong secrets'),
    [{ count: 1 }],
  );
  t.notOk(JSON.stringify(operators.sidecar.lines).includes(wrong));
  t.equal((await operators.send('GET', '/keys', {}, wrong)).status, 429);
  t.match((await ask(SECRETS[0])).body, /reasons/);
});

/** More than are told within the test that they are wrong. */
const GUESSES = rounds({ short: 300, long: 1000 });

t.test(`${GUESSES} wrong secrets let nothing in, are bounded, and are logged without one`, async (t) => {
  const operators = await Operators.start(t);
  const connection = await RawConnection.open(operators.sidecar.app.operatorsPort);
  t.teardown(() => connection.close());
  const guesses = Array.from({ length: GUESSES }, (_, i) => `${SECRETS[0].slice(0, 36)}${String(i).padStart(4, '0')}`);
  const statuses: number[] = [];
  for (const guess of guesses) {
    const headers = { ...JSON_TYPE, Authorization: `Bearer ${guess}` };
    const refused = await connection.request('POST', '/keys', headers, '{"account":"a"}').response();
    statuses.push(refused.status);
    if (refused.status === 429) t.ok(Number(refused.field('retry-after')) > 0);
  }
  const tried = statuses.filter((status) => status === 401).length;
  t.ok(tried >= 60 && tried < 200, `${tried} were told that they are wrong, the others to wait`);
  t.equal(statuses.filter((status) => status === 429).length, GUESSES - tried);
  t.equal((await operators.send('POST', '/keys', { account: 'acme' })).status, 201, 'a right one is served meanwhile');
  const lines = operators.sidecar.lines.filter(({ event }) => event === 'operators: wrong secrets');
  t.ok(lines.length >= 1 && lines.length < 5, `${lines.length} lines`);
  const log = JSON.stringify(operators.sidecar.lines);
  for (const guess of guesses) t.notOk(log.includes(guess));
  const audit = await readFile(join(operators.sidecar.dir, 'audit.jsonl'), 'utf8');
  t.equal(audit.trim().split('\n').length, 1);
});
