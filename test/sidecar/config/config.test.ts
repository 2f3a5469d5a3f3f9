import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import t from 'tap';
import { keysFileOf, loadConfig, priceFileOf, type Config } from '../../../sidecar/config/config.js';
import { configSchema } from '../../../sidecar/config/schema.js';
import { settings } from '../../../sidecar/config/setting.js';

function loaded(environment: Record<string, string> = {}): Config {
  const result = loadConfig(environment);
  if (result.kind === 'invalid') throw new Error(result.line);
  return result.config;
}

function line(environment: Record<string, string>): string {
  const result = loadConfig(environment);
  return result.kind === 'invalid' ? result.line : 'accepted';
}

t.test('without settings: every default', async (t) => {
  const { models, ...rest } = loaded();
  let defaults = 0;
  // Of the schema, which docs/config.md is generated from.
  for (const { path, schema } of settings(configSchema)) {
    if (schema.default === undefined || path === 'models') continue;
    defaults += 1;
    const value = path.split('.').reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], rest);
    t.strictSame(value, schema.form === 'path' ? resolve(schema.default as string) : schema.default, path);
  }
  t.ok(defaults > 80, `${defaults} settings`);
  const dataDir = join(process.cwd(), '.ra');
  t.match(rest, { dataDir, keys: { file: join(dataDir, 'keys.json') } });
  const common = {
    file: 'embedded',
    toolFormat: 'auto',
    replicas: 1,
    threads: 0,
    gpu: 'auto',
    gpuLayers: 'all',
    flashAttention: 'auto',
    prefillTokensPerStep: 0,
    prefillAhead: true,
    speculation: 'auto',
    swaFull: false,
    kv: { keys: 'f16', values: 'f16' },
    checkpoints: {},
    prefixCache: { scope: 'account', maxAgeMs: 3_600_000 },
    stepMs: 100,
    prefillShare: 50,
    prefixReuse: 'auto',
    load: 'eager',
    idleUnloadMs: 0,
    ownedBy: 'local',
    engine: { kind: 'llama.cpp', cancelWaitMs: 30_000, silentMs: 180_000, tokenMs: 60_000 },
  };
  t.strictSame(models, [
    { ...common, id: 'ra-tiny-chat', kind: 'chat', seats: 8, contextPerSeat: 2048 },
    { ...common, id: 'ra-tiny-decide', kind: 'decision', seats: 2, contextPerSeat: 8192 },
  ]);
  t.strictSame(loaded(), loaded(), 'a second load starts from the same defaults');
});

t.test('a file with comments, and variables that replace its settings', async (t) => {
  const dir = t.testdir({
    'ra.jsonc': '{ // where\n "listen": { "port": 1111, "host": "0.0.0.0", }, "dataDir": "/var/ra" }',
  });
  const config = loaded({
    RA_CONFIG: join(dir, 'ra.jsonc'),
    RA_LISTEN_PORT: '8081',
    RA_QUEUE_MAX_WAIT_MS: '5',
    HOME: '/',
  });
  t.match(config.listen, { host: '0.0.0.0', port: 8081 });
  t.equal(config.queue.maxWaitMs, 5);
  t.equal(config.keys.file, '/var/ra/keys.json');
});

t.test('an IPv6 address may be in brackets, as in a URL', async (t) => {
  const { listen, operators } = loaded({ RA_LISTEN_HOST: '[::]', RA_OPERATORS_HOST: '[::1]' });
  t.equal(listen.host, '::');
  t.equal(operators.host, '::1');
});

t.test('what Kubernetes tells a pod of the namespace’s Services is no setting', async (t) => {
  const services = {
    RA_SIDECAR_SERVICE_HOST: '10.96.0.7',
    RA_SIDECAR_SERVICE_PORT: '80',
    RA_SIDECAR_SERVICE_PORT_HTTP: '80',
    RA_SIDECAR_PORT: 'tcp://10.96.0.7:80',
    RA_SIDECAR_PORT_80_TCP: 'tcp://10.96.0.7:80',
    RA_SIDECAR_PORT_80_TCP_ADDR: '10.96.0.7',
  };
  t.match(loadConfig(services), { kind: 'config' });
  t.match(loadConfig({ ...services, RA_SIDECAR_HOST: 'x', RA_LISTEN_PROT: '1' }), {
    lines: [
      'config: RA_SIDECAR_HOST is not a setting (environment)',
      'config: RA_LISTEN_PROT is not a setting; did you mean RA_LISTEN_PORT? (environment)',
    ],
  });
});

t.test('switches are true or false', async (t) => {
  const variable = 'RA_DEVELOPMENT_VALIDATE_ANSWERS';
  t.equal(loaded({ [variable]: 'true' }).development.validateAnswers, true);
  t.equal(loaded({ [variable]: 'false' }).development.validateAnswers, false);
  const problem = `development.validateAnswers must be a boolean (environment variable ${variable})`;
  for (const value of ['1', 'yes', 'TRUE', '']) t.equal(line({ [variable]: value }), `config: ${problem}`, value);
});

t.test('each path is relative to the working directory, and absolute in the configuration', async (t) => {
  const isPath = /(?:file|socket|projector|chatTemplate|dataDir)$/i;
  const set = {
    ...Object.fromEntries(
      settings(configSchema)
        .filter(({ path }) => isPath.test(path))
        .map(({ variable }) => [variable, 'some/where']),
    ),
    RA_DELIVERY_NATS_AUTH: 'token',
    RA_STORE_URL: 'postgresql://u@h/db',
    RA_DELIVERY_NATS_TLS: 'true',
    RA_MODELS: JSON.stringify([
      { id: 'a', kind: 'chat', file: 'some/where', chatTemplate: 'some/where', vision: { projector: 'some/where' } },
      {
        id: 'b',
        kind: 'chat',
        file: 'embedded',
        engine: { kind: 'vllm', socket: 'some/where', secretFile: 'some/where' },
      },
    ]),
  };
  const config = loaded(set);
  const texts = (value: unknown, path: string): (readonly [string, string])[] =>
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([name, each]) => texts(each, `${path}.${name}`))
      : [[path, String(value)]];
  const paths = texts(config, '').filter(([path]) => isPath.test(path));
  t.equal(paths.length, 27);
  for (const [path, value] of paths)
    t.equal(value, path === '.models.1.file' ? 'embedded' : join(process.cwd(), 'some/where'), path);
  t.equal(loaded({ RA_CREDIT_FILE: '/etc/credit.json' }).credit.file, '/etc/credit.json');
});

t.test('lists come as JSON', async (t) => {
  const config = loaded({
    RA_MODELS: '[{"id":"a","kind":"chat","file":"/models/a.gguf","gpu":false}]',
    RA_CORS_ORIGINS: '["https://app.example","*"]',
    RA_KEYS_FILE: 'elsewhere.json',
  });
  t.match(config.models, [{ id: 'a', file: '/models/a.gguf', gpu: false, seats: 8 }]);
  t.strictSame(config.cors.origins, ['https://app.example', '*']);
  t.equal(config.keys.file, join(process.cwd(), 'elsewhere.json'));
});

t.test('frozen at every level', async (t) => {
  const config = loaded();
  t.throws(() => ((config.models[0] as { seats: number }).seats = 1), TypeError);
  t.throws(() => (config.cors.origins as string[]).push('*'), TypeError);
  t.throws(() => ((config as { environment: string }).environment = 'production'), TypeError);
});

/** A model for each, of kind chat. */
const models = (...list: object[]): string => JSON.stringify(list.map((m) => ({ kind: 'chat', file: 'f', ...m })));

t.test('errors of the file that end the start, in one line', async (t) => {
  const cases: Readonly<Record<string, string>> = {
    '{"queue":{"maxWait":1}}':
      'queue.maxWait is not a known field; did you mean queue.maxWaitMs?; known are maxWaitMs, waitingPerSeat, waitingBytes, waitForLoad',
    '{"queue":{"maxWaitMs":-1}}': 'queue.maxWaitMs must be at least 0',
    '{"queue":7}': 'queue must be an object',
    '{\n"queue":\n': 'is not JSON: a value is missing (line 2, column 9)',
    '[]': 'must contain one object',
    '': 'must contain one object',
    '// nothing yet\n': 'must contain one object',
    '{ // the first one\n "log": {"level":"info"},\n "models": [], "queue": {},\n "log": {} }':
      'repeats a name within one object, on line 4',
    '{"queue":{"maxWaitMs":7,\n"maxWaitMs":8}}': 'repeats a name within one object, on line 2',
    '{"credit":{"snapshotMs":100}}': 'credit.snapshotMs was dropped, its value is fixed: remove it',
    '{"models":[{"id":"a","kind":"chat"}]}': 'models[0].file is required',
    '{"models":[{"id":"a","kind":"chat","file":"f","seats":0}]}': 'models[0].seats must be at least 1',
    '{"operators":{"port":8080}}': 'operators.port must differ from listen.port',
    '{"delivery":{"kafka":{"topic":"usage"}}}':
      'delivery.kafka was dropped: set delivery.url or delivery.nats to a service that writes the events to Kafka (docs/usage.md#kafka)',
  };
  const file = join(t.testdir(), 'ra.json');
  t.equal(line({ RA_CONFIG: file }), `config: cannot be read: ENOENT (file ${file})`);
  for (const [text, expected] of Object.entries(cases)) {
    await writeFile(file, text);
    t.equal(line({ RA_CONFIG: file }), `config: ${expected} (file ${file})`);
  }
  await writeFile(file, '{"queue":null}');
  t.equal(line({ RA_CONFIG: file, RA_QUEUE_MAX_WAIT_MS: '1' }), `config: queue must be an object (file ${file})`);
});

t.test('errors of one variable that end the start, in one line', async (t) => {
  const cases: Readonly<Record<string, string>> = {
    'RA_LISTEN_PORT=80a': 'listen.port must be an integer',
    'RA_LISTEN_HOST=': 'listen.host must not be empty',
    'RA_LOG_LEVEL=loud': 'log.level must be one of fatal, error, warn, info, debug, trace, silent',
    'RA_MODELS=[': 'models must be an array',
    'RA_MODELS=[{"id":"a","seats":1,"seats":2}]': 'models repeats a name within one object',
    'RA_MODELS=[]': 'models must have at least 1 item',
    [`RA_MODELS=${models({ id: 'a', gpu: true })}`]: 'models[0].gpu must be one of auto, cuda, vulkan, metal, false',
    [`RA_MODELS=${models({ id: 'a', cores: '0-3,' })}`]:
      'models[0].cores must match ^\\d{1,4}(-\\d{1,4})?(,\\d{1,4}(-\\d{1,4})?)*$',
    [`RA_MODELS=${models({ id: 'a', sets: 1 })}`]:
      'models[0].sets is not a known field; did you mean models[0].seats?; known are id, kind, file, engine, chatTemplate, toolFormat, seats, contextPerSeat, minDimensions, replicas, threads, cores, gpu, gpuLayers, flashAttention, prefillTokensPerStep, stepMs, prefillShare, prefixReuse, prefillAhead, speculation, swaFull, kv, checkpoints, vision, prefixCache, load, idleUnloadMs, cohort, ownedBy',
    [`RA_MODELS=${models({ id: 'a' }, { id: 'a' })}`]: 'models[1].id must differ from every other model’s id',
    'RA_OPERATORS_HOST=0.0.0.0':
      'operators.host must be a loopback address: without operators.secretFile this listener requires no key',
    'RA_ENGINE_HANG_MS=999': 'engine.hangMs must be at least 1000',
    'RA_USAGE_MAX_BACKLOG_BYTES=20000000': 'usage.maxBacklogBytes must be at least twice usage.segmentBytes',
    'RA_DELIVERY_URL=https://user:pass@sink.example':
      'delivery.url must be a URL without user name and password; use delivery.secretFile',
    'RA_DELIVERY_URL=https://': 'delivery.url must be a URL without user name and password; use delivery.secretFile',
    'RA_DELIVERY_NATS_SECRET_FILE=secret':
      'delivery.nats.secretFile must be set where delivery.nats.auth is not none, and only there',
    'RA_TELEMETRY_OTLP_MAX_QUEUED=31': 'telemetry.otlp.maxQueued must be at least 32',
  };
  const otlp = ['https://user:pass@otlp.example', 'https://otlp.example?key=1', 'https://otlp.example/#a', 'https://'];
  const url = 'must be a URL without user name, password, query and fragment; use telemetry.otlp.headersFile';
  for (const [given, expected] of [
    ...Object.entries(cases),
    ...otlp.map((each) => [`RA_TELEMETRY_OTLP_ENDPOINT=${each}`, `telemetry.otlp.endpoint ${url}`] as const),
  ]) {
    const [, name = '', value = ''] = /^(\w+)=(.*)$/.exec(given) ?? [];
    t.equal(line({ [name]: value }), `config: ${expected} (environment variable ${name})`);
  }
});

t.test('errors of several variables, and of names', async (t) => {
  for (const [environment, expected] of [
    [{ RA_LISTEN_PROT: '1' }, 'RA_LISTEN_PROT is not a setting; did you mean RA_LISTEN_PORT? (environment)'],
    [
      { RA_BODIES_CHAT_BYTES: '600000000' },
      'bodies.totalBytes must be at least bodies.chatBytes and bodies.shortBytes together',
    ],
    [
      { RA_DELIVERY_KAFKA_BROKERS: '["a.example:9092"]' },
      'RA_DELIVERY_KAFKA_BROKERS was dropped: set delivery.url or delivery.nats to a service that writes the events to Kafka (docs/usage.md#kafka) (environment)',
    ],
    [{ RA_USAGE_PROBE_MS: '1000' }, 'RA_USAGE_PROBE_MS was dropped, its value is fixed: remove it (environment)'],
    [{ RA_ENGINE_BACKOFF_MIN_MS: '30001' }, 'engine.backoffMaxMs must be at least engine.backoffMinMs'],
    [{ RA_DELIVERY_BACKOFF_MIN_MS: '60001' }, 'delivery.backoffMaxMs must be at least delivery.backoffMinMs'],
    [
      { RA_DELIVERY_URL: 'https://a.example', RA_DELIVERY_NATS_SERVERS: '["nats://b.example:4222"]' },
      'delivery must name one sink: url or nats.servers',
    ],
    [
      { RA_DELIVERY_NATS_AUTH: 'token' },
      'delivery.nats.secretFile must be set where delivery.nats.auth is not none, and only there',
    ],
    [{ RA_DELIVERY_NATS_CA_FILE: 'ca.pem' }, 'delivery.nats.tls must be true for delivery.nats.caFile'],
    [
      { RA_DELIVERY_NATS_TLS: 'true', RA_DELIVERY_NATS_CERT_FILE: 'cert.pem' },
      'delivery.nats.certFile must be set together with delivery.nats.keyFile (environment variable RA_DELIVERY_NATS_CERT_FILE)',
    ],
  ] as const)
    t.equal(line(environment), `config: ${expected}`);
});

t.test('both listeners may use any port', async (t) => {
  t.equal(loaded({ RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' }).listen.port, 0);
});

t.test('a small decision context is allowed, with a warning', async (t) => {
  const small = '[{"id":"d","kind":"decision","file":"f","contextPerSeat":512}]';
  const result = loadConfig({ RA_MODELS: small });
  t.match(result, { kind: 'config', hints: [/^models\[0\]\.contextPerSeat is below 8192/] });
  t.match(loadConfig({}), { hints: [] });
});

t.test('a setting that access.mode makes useless is allowed, with a warning', async (t) => {
  const unused = (mode: string, more: Record<string, string>): unknown => {
    const result = loadConfig({ RA_ACCESS_MODE: mode, RA_GATEWAY_SECRET_FILE: 'secret', ...more });
    return result.kind === 'config' ? result.hints.map((hint) => hint.replace(/ is not used: .*/, '')) : result.line;
  };
  const authorizer = { RA_AUTHORIZER_URL: 'https://authorizer.example/' };
  const credit = { RA_CREDIT_FILE: 'credit.json' };
  const limits = {
    RA_LIMITS_CHAT_IN_FLIGHT: '4',
    RA_LIMITS_MODELS_PER_MINUTE: '9',
    RA_LIMITS_DECISIONS_IN_FLIGHT: '32',
  };
  const gateway = ['authorizer.url', 'credit.file', 'limits.chat.inFlight', 'limits.models.perMinute'];
  t.strictSame(unused('gateway', { ...authorizer, ...credit, ...limits }), gateway);
  t.strictSame(unused('keys', { ...authorizer, ...credit, ...limits }), ['authorizer.url']);
  t.strictSame(unused('authorizer', { ...authorizer, ...credit, ...limits }), []);
  t.match(loadConfig({ RA_ACCESS_MODE: 'keys', ...authorizer }), {
    hints: ['authorizer.url is not used: with access.mode keys no authorizer is asked'],
  });
});

t.test('a secret that is sent unencrypted is allowed, with a warning', async (t) => {
  const hintsFor = (url: string, secretFile?: string): unknown =>
    loadConfig({ RA_DELIVERY_URL: url, ...(secretFile !== undefined && { RA_DELIVERY_SECRET_FILE: secretFile }) });
  t.match(hintsFor('http://sink.example/', 'secret'), { hints: [/^delivery\.url is not https/] });
  for (const url of ['https://sink.example/', 'http://127.0.0.1:9/', 'http://[::1]:9/', 'http://localhost/'])
    t.strictSame((hintsFor(url, 'secret') as { hints: unknown }).hints, [], url);
  t.match(hintsFor('http://sink.example/'), { hints: [] });
  const nats = (host: string, tls = 'false'): unknown =>
    loadConfig({
      RA_DELIVERY_NATS_SERVERS: `["nats://${host}:4222"]`,
      RA_DELIVERY_NATS_AUTH: 'token',
      RA_DELIVERY_NATS_SECRET_FILE: 'secret',
      RA_DELIVERY_NATS_TLS: tls,
    });
  t.match(nats('bus.example'), { hints: [/^delivery\.nats\.tls is off/] });
  t.match(nats('bus.example', 'true'), { hints: [] });
  for (const host of ['127.0.0.1', '[::1]']) t.match(nats(host), { hints: [] });
});

t.test('an OTLP endpoint: where it may be, and the warning for unencrypted headers', async (t) => {
  const endpointOf = (endpoint: string): string | undefined =>
    loaded({ RA_TELEMETRY_OTLP_ENDPOINT: endpoint }).telemetry.otlp.endpoint;
  for (const good of ['https://otlp.example', 'http://127.0.0.1:4318', 'https://otlp.example:4318/behind/a/path/'])
    t.equal(endpointOf(good), good);
  t.match(line({ RA_TELEMETRY_OTLP_ENDPOINT: 'grpc://otlp.example' }), /^config: telemetry\.otlp\.endpoint must /);
  const hintsFor = (endpoint: string | undefined, headersFile?: string): unknown =>
    loadConfig({
      ...(endpoint !== undefined && { RA_TELEMETRY_OTLP_ENDPOINT: endpoint }),
      ...(headersFile !== undefined && { RA_TELEMETRY_OTLP_HEADERS_FILE: headersFile }),
    });
  t.match(hintsFor('http://otlp.example', 'headers'), {
    hints: ['telemetry.otlp.endpoint is not https: its headers are sent unencrypted'],
  });
  for (const endpoint of ['https://otlp.example', 'http://127.0.0.1:4318', 'http://[::1]:4318', undefined])
    t.strictSame((hintsFor(endpoint, 'headers') as { hints: unknown }).hints, [], endpoint ?? 'none');
  t.strictSame((hintsFor('http://otlp.example') as { hints: unknown }).hints, [], 'no secret is sent');
});

t.test('listeners and access', async (t) => {
  const file = (name: string, content: object): Record<string, string> => {
    const dir = t.testdir({ [name]: JSON.stringify(content) });
    return { RA_CONFIG: join(dir, name) };
  };
  const authorizer = (url: string, more = {}): Record<string, string> =>
    file('a.json', { access: { mode: 'authorizer' }, authorizer: { url, ...more } });

  t.match(line(file('a.json', { listen: { tcp: false } })), /listen\.tcp must be true unless listen\.socket is set/);
  const alone = loaded(file('a.json', { listen: { tcp: false, port: 9090, socket: 'ra.sock' } }));
  t.equal(alone.listen.socket, join(process.cwd(), 'ra.sock'), 'a port without a listener may be any');
  t.match(
    line(file('a.json', { listen: { socket: `/${'ü'.repeat(60)}` } })),
    /listen\.socket must have at most 107 bytes/,
  );
  t.match(line(file('a.json', { listen: { socketMode: '0999' } })), /listen\.socketMode must match/);

  t.match(line(file('a.json', { access: { mode: 'gateway' } })), /gateway\.secretFile must be set/);
  const gateway = loaded(file('a.json', { access: { mode: 'gateway' }, gateway: { secretFile: 'secret' } }));
  t.equal(gateway.gateway.secretFile, join(process.cwd(), 'secret'));
  const open = loaded(file('a.json', { operators: { host: '0.0.0.0', secretFile: 'operators' } }));
  t.equal(open.operators.secretFile, join(process.cwd(), 'operators'), 'with a key it may be on any address');

  t.match(line(file('a.json', { access: { mode: 'authorizer' } })), /authorizer\.url must be set/);
  for (const url of ['https://keys.example/v1', 'http://127.0.0.1:1/', 'http://[::1]:1/', 'http://localhost/x'])
    t.equal(loaded(authorizer(url)).authorizer.url, url);
  for (const url of ['http://keys.example/', 'http://10.0.0.1/', 'http://127.0.0.1.example/', 'http://[::2]/']) {
    t.match(line(authorizer(url)), /authorizer\.url must be https/, url);
    t.equal(
      loaded(authorizer(url, { socket: '/run/a.sock' })).authorizer.url,
      url,
      'over a socket it stays on this host',
    );
  }
  for (const url of ['ftp://127.0.0.1/', 'http://user:canary@127.0.0.1/', 'https://', 'http://127.0.0.1/#x']) {
    const refused = line(authorizer(url));
    t.match(refused, /authorizer\.url must/, url);
    t.notMatch(refused, /canary/);
  }
});

t.test('all errors are reported, and the first one is the line of a failed start', async (t) => {
  const problems = (environment: Record<string, string>): readonly string[] => {
    const result = loadConfig(environment);
    return result.kind === 'invalid' ? result.lines : [];
  };
  const file = join(t.testdir({ 'ra.json': '{"listen":{"port":"x","prot":1},"log":{"level":"loud"}}' }), 'ra.json');
  const lines = problems({ RA_CONFIG: file, RA_PORT: '1', RA_HOST: 'x', RA_QUEUE_MAX_WAIT_MS: '-3' });
  t.strictSame(lines.slice(0, 2), [
    'config: RA_PORT is not a setting (environment)',
    'config: RA_HOST is not a setting (environment)',
  ]);
  t.same(lines.length, 6);
  for (const start of [
    'listen.prot is not a known field',
    'listen.port must be an integer',
    'log.level must be one of',
  ])
    t.ok(
      lines.some((each) => each.startsWith(`config: ${start}`) && each.endsWith(` (file ${file})`)),
      start,
    );
  t.equal(lines[0], line({ RA_CONFIG: file, RA_PORT: '1', RA_HOST: 'x', RA_QUEUE_MAX_WAIT_MS: '-3' }));
  t.strictSame(problems({ RA_OPERATORS_PORT: '8080', RA_OPERATORS_HOST: '0.0.0.0', RA_ENGINE_BACKOFF_MAX_MS: '100' }), [
    'config: operators.host must be a loopback address: without operators.secretFile this listener requires no key (environment variable RA_OPERATORS_HOST)',
    'config: operators.port must differ from listen.port (environment variable RA_OPERATORS_PORT)',
    'config: engine.backoffMaxMs must be at least engine.backoffMinMs (environment variable RA_ENGINE_BACKOFF_MAX_MS)',
  ]);
  t.match(loadConfig({ RA_CONFIG: '/nowhere.json' }, file), { kind: 'invalid', line: /\(file .*ra\.json\)$/ });
});

t.test('a key and its certificate are set together, for a port', async (t) => {
  t.match(line({ RA_TLS_KEY_FILE: 'key.pem' }), /tls\.keyFile and tls\.certFile must be set together/);
  const both = { RA_TLS_KEY_FILE: 'key.pem', RA_TLS_CERT_FILE: 'cert.pem' };
  const socket = { RA_LISTEN_TCP: 'false', RA_LISTEN_SOCKET: 'ra.sock' };
  t.match(line({ ...both, ...socket }), /tls\.keyFile must not be set/);
  t.same(loaded(both).tls, { keyFile: join(process.cwd(), 'key.pem'), certFile: join(process.cwd(), 'cert.pem') });
});

t.test('prepaid credit in the store', async (t) => {
  const source = { RA_CREDIT_SOURCE: 'store' };
  const stored = { ...source, RA_STORE_URL: 'postgresql://u@%2Ftmp/db' };
  t.equal(loaded(stored).credit.source, 'store');
  t.match(line(source), /store\.url must be set where credit\.source is store/);
  t.match(line({ ...stored, RA_CREDIT_FILE: 'c.json' }), /credit\.file must not be set/);
});

t.test('keys and prices in the store', async (t) => {
  const source = { RA_KEYS_SOURCE: 'store', RA_PRICING_SOURCE: 'store', RA_DATA_DIR: '/data' };
  const stored = { ...source, RA_STORE_URL: 'postgresql://u@%2Ftmp/db' };
  t.equal(keysFileOf(loaded(stored)), '/data/fleet-keys.json');
  t.equal(priceFileOf(loaded(stored)), '/data/fleet-prices.json');
  t.equal(keysFileOf(loaded({ RA_DATA_DIR: '/data' })), '/data/keys.json');
  t.equal(priceFileOf(loaded({})), undefined);
  t.match(line(source), /store\.url must be set where keys\.source is store/);
  t.match(line({ ...source, RA_KEYS_SOURCE: 'file' }), /store\.url must be set where pricing\.source is store/);
  t.match(line({ ...stored, RA_PRICING_FILE: 'p.json' }), /pricing\.file must not be set/);
  t.match(line({ ...stored, RA_STORE_STALE_MS: '1999' }), /store\.staleMs must be 0 or at least twice store\.pollMs/);
  for (const ms of ['0', '2000']) t.ok(loaded({ ...stored, RA_STORE_STALE_MS: ms }));
});

t.test('a chat template and a tool format', async (t) => {
  const models = (more: object) => ({
    RA_MODELS: JSON.stringify([{ id: 'a', kind: 'chat', file: 'a.gguf', ...more }]),
  });
  t.equal(loaded(models({})).models[0]?.toolFormat, 'auto');
  const [model] = loaded(models({ chatTemplate: 'own.jinja', toolFormat: 'hermes' })).models;
  t.equal(model?.chatTemplate, join(process.cwd(), 'own.jinja'));
  t.equal(model?.toolFormat, 'hermes');
  t.match(
    line(models({ toolFormat: 'xml' })),
    /^config: models\[0\]\.toolFormat must be one of auto, json, none, hermes, /,
  );
  t.match(line(models({ chatTemplate: '' })), /^config: models\[0\]\.chatTemplate must /);
  t.match(
    line(models({ kind: 'decision', toolFormat: 'json' })),
    /^config: models\[0\]\.toolFormat must not be set for a decision model/,
  );
});

t.test('what reads images: one GPU or the CPU, of a chat model', async (t) => {
  const of = (vision: object, more: object = {}): Record<string, string> => ({
    RA_MODELS: JSON.stringify([
      { id: 'm', kind: 'chat', file: '/m.gguf', ...more, vision: { projector: '/p.gguf', ...vision } },
    ]),
  });
  t.match(loaded(of({})).models[0]?.vision, {
    projector: '/p.gguf',
    maxImages: 16,
    maxPixels: 2 ** 24,
    threads: 0,
    cacheBytes: 2 ** 28,
    devices: undefined,
    maxTokensPerImage: undefined,
  });
  for (const devices of [0, 'GPU-01234567-89ab-cdef-0123-456789abcdef'])
    t.equal(loaded(of({ devices })).models[0]?.vision?.devices, devices);
  for (const [vision, more, problem] of [
    [{ devices: 0 }, { gpu: false }, /models\[0\]\.vision\.devices must not be set where gpu is false/],
    [{ devices: 'cuda' }, {}, /models\[0\]\.vision\.devices must be the index of a GPU/],
    [{ devices: [0, 1] }, {}, /models\[0\]\.vision\.devices must be the index of a GPU/],
    [{ maxImages: 0 }, {}, /models\[0\]\.vision\.maxImages must be/],
    [{ maxTokensPerImage: 0 }, {}, /models\[0\]\.vision\.maxTokensPerImage must be/],
    [{ cores: 'all' }, {}, /models\[0\]\.vision\.cores must/],
    [{}, { kind: 'decision' }, /models\[0\]\.vision must not be set for a decision model/],
  ] as const)
    t.match(line(of(vision, more)), problem);
});

t.test('an external engine server is named by URLs or a socket, and only with settings that it supports', async (t) => {
  const of = (engine: object, more: object = {}): Record<string, string> => ({
    RA_MODELS: JSON.stringify([{ id: 'm', kind: 'chat', file: '/m.gguf', engine, ...more }]),
  });
  const vllm = { kind: 'vllm', url: 'http://127.0.0.1:8000' };
  t.match(loaded(of(vllm)).models[0]?.engine, { ...vllm, cancelWaitMs: 30_000, silentMs: 180_000 });
  const socket = { kind: 'llama-server', socket: 'run/llama', secretFile: 'key' };
  t.match(loaded(of(socket)).models[0]?.engine, {
    socket: join(process.cwd(), 'run/llama'),
    secretFile: join(process.cwd(), 'key'),
  });
  for (const [engine, more, problem] of [
    [{ kind: 'sglang' }, { prefixCache: { scope: 'all' } }, /models\[0\]\.engine must have either url or socket/],
    [{ ...vllm, socket: '/s' }, {}, /models\[0\]\.engine must have either url or socket/],
    [{ kind: 'vllm', url: 'ftp://a' }, {}, /models\[0\]\.engine\.url must be an http or https URL/],
    [{ kind: 'vllm', url: ['http://a', 'http://a'] }, {}, /engine\.url must not name a server twice/],
    [{ ...vllm, url: 'http://a', secretFile: '/k' }, {}, /engine\.url must be https, or name a loopback address/],
    [{ url: 'http://a' }, {}, /engine\.url must not be set where engine\.kind is llama\.cpp/],
    [{ ...vllm, kind: 'sglang' }, {}, /prefixCache\.scope must be all where engine\.kind is sglang/],
    [vllm, { replicas: 2 }, /replicas must be 1 where engine\.kind is not llama\.cpp/],
    [vllm, { vision: { projector: '/p.gguf' } }, /vision must not be set where engine\.kind is not llama\.cpp/],
    [
      vllm,
      { kind: 'decision' },
      /engine\.kind must be llama\.cpp for a decision model unless decisions\.isolate is false/,
    ],
  ] as const)
    t.match(line(of(engine, more)), problem);
  t.equal(line({ ...of(vllm, { kind: 'decision' }), RA_DECISIONS_ISOLATE: 'false' }), 'accepted');
  t.match(loadConfig(of({ ...vllm, url: 'http://inference:8000' })), {
    hints: [/prompts and replies cross the network/],
  });
});

t.test('where it comes from, and that a service names its models', async (t) => {
  const dir = t.testdir({
    'ra.jsonc': '{ "log": {} }',
    'models.jsonc': '{ "models": [{ "id": "a", "kind": "chat", "file": "/a.gguf" }], "environment": "eu" }',
  });
  const path = join(dir, 'ra.jsonc');
  const found = (environment: Record<string, string>, file?: string): object => {
    const result = file === undefined ? loadConfig(environment) : loadConfig(environment, file);
    if (result.kind === 'invalid') throw new Error(result.line);
    const { source, unservable } = result;
    return { source, unservable };
  };
  t.strictSame(found({}), { source: 'built-in defaults (RA_CONFIG is not set)', unservable: undefined });
  t.strictSame(found({ RA_CONFIG: path }), { source: path, unservable: undefined });
  const relative = path.slice(process.cwd().length + 1);
  if (path.startsWith(process.cwd())) t.match(found({ RA_CONFIG: relative }), { source: path }, 'an absolute path');
  const production = { RA_CONFIG: path, RA_ENVIRONMENT: 'production' };
  const source = `${path}, with RA_ENVIRONMENT of the environment`;
  t.strictSame(found(production), {
    source,
    unservable: `config: models must be set where environment is production: the embedded models, which are served without it, are for development (${source})`,
  });
  const named = JSON.stringify([{ id: 'a', kind: 'chat', file: 'embedded' }]);
  t.match(found({ ...production, RA_MODELS: named }), { unservable: undefined }, 'also the embedded ones, by name');
  t.match(found({}, join(dir, 'models.jsonc')), { source: /models\.jsonc$/, unservable: undefined });
});

t.test('a misspelt setting is answered with the closest one', async (t) => {
  const written = (text: string): string => line({ RA_CONFIG: join(t.testdir({ 'ra.jsonc': text }), 'ra.jsonc') });
  t.equal(
    line({ RA_LISTEN_PROT: '1' }),
    'config: RA_LISTEN_PROT is not a setting; did you mean RA_LISTEN_PORT? (environment)',
  );
  t.equal(line({ RA_NONSENSE: '1' }), 'config: RA_NONSENSE is not a setting (environment)');
  t.match(
    written('{"queue": {"maxWaitMS": 1}}'),
    /^config: queue\.maxWaitMS is not a known field; did you mean queue\.maxWaitMs\?; known are/,
  );
  t.match(written('{"quue": {}}'), /^config: quue is not a known field; did you mean queue\?/);
  t.match(written('{"maxWaitMs": 1}'), /^config: maxWaitMs is not a known field; known are/);
  t.match(
    written('{"models": [{"id": "a", "kind": "chat", "file": "/a", "context": 1, "seat": 1}]}'),
    /models\[0\]\.seat is not a known field; did you mean models\[0\]\.seats\?|models\[0\]\.context is/,
  );
});

t.test('a file that is not JSON: what is wrong, and where', async (t) => {
  for (const [text, problem] of [
    ['{\n "log": {} // of errors\n "queue": {}\n}', 'a comma is missing (line 2, column 11)'],
    ['{"log": {},\n"queue" {}}', 'a colon is missing (line 2, column 8)'],
    ['{"log": {}', 'a closing } is missing (line 1, column 11)'],
    ['{"log":,}', 'a value is missing (line 1, column 8)'],
    ['{\n  log: {}}', 'a word that is no JSON value, or a name without double quotes (line 2, column 3)'],
    ['{"log": {}}}', 'something follows the end of the object (line 1, column 12)'],
    ['{"a": "b\n}', 'a text without its closing quote (line 1, column 7)'],
  ] as const) {
    const path = join(t.testdir({ 'ra.jsonc': text }), 'ra.jsonc');
    t.equal(line({ RA_CONFIG: path }), `config: is not JSON: ${problem} (file ${path})`);
  }
});
