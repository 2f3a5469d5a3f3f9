/** Rules between settings, which the schema cannot express, and warnings about settings that are probably not intended. */
import { limitsSchema } from './access-schema.js';
import { deviceProblems } from './devices.js';
import { serverUrls, type ModelConfig } from './model-schema.js';
import type { Config } from './schema.js';
import { settings } from './setting.js';
import { storeAddressOf } from './store-schema.js';

/** Tokens that a decision prompt may have, and a few for the sequence's own bookkeeping. */
const DECISION_CONTEXT = 8192;

/** Longest path in Linux's `sun_path` without its final zero, in bytes. */
const SOCKET_PATH_BYTES = 107;

/** By the problem that is reported: whether the configuration has it. */
type Rules = Readonly<Record<string, boolean>>;

function brokenOf(rules: Rules): string[] {
  return Object.keys(rules).filter((problem) => rules[problem]);
}

/** Violated rules between settings, each as `path must …`; empty if there is none. */
export function contradictions(config: Config): string[] {
  const { listen, tls, operators, bodies, stream, usage, engine, access, gateway, authorizer, telemetry, batch } =
    config;
  const { endpoint } = telemetry.otlp;
  return [
    ...config.models.flatMap((model, i) => modelProblems(model, config, i).map((problem) => `models[${i}].${problem}`)),
    ...brokenOf({
      'operators.host must be a loopback address: without operators.secretFile this listener requires no key':
        !isLoopback(operators.host) && operators.secretFile === undefined,
      'operators.port must differ from listen.port': listen.tcp && listen.port !== 0 && listen.port === operators.port,
      'tls.keyFile and tls.certFile must be set together': (tls.keyFile === undefined) !== (tls.certFile === undefined),
      'tls.keyFile must not be set without listen.tcp: a Unix socket stays without TLS':
        tls.keyFile !== undefined && !listen.tcp,
      'bodies.totalBytes must be at least bodies.chatBytes and bodies.shortBytes together':
        bodies.totalBytes < bodies.chatBytes + bodies.shortBytes,
      'stream.totalBufferedBytes must be at least stream.maxBufferedBytes':
        stream.totalBufferedBytes < stream.maxBufferedBytes,
      'usage.maxBacklogBytes must be at least twice usage.segmentBytes': usage.maxBacklogBytes < 2 * usage.segmentBytes,
      'engine.backoffMaxMs must be at least engine.backoffMinMs': engine.backoffMaxMs < engine.backoffMinMs,
      'listen.tcp must be true unless listen.socket is set': !listen.tcp && listen.socket === undefined,
      ...tooLong('listen.socket', listen.socket),
      ...tooLong('authorizer.socket', authorizer.socket),
      'batch.keyFile must be set where batch.store is disk': batch.store === 'disk' && batch.keyFile === undefined,
      'gateway.secretFile must be set where access.mode is gateway':
        access.mode === 'gateway' && gateway.secretFile === undefined,
      'authorizer.url must be set where access.mode is authorizer':
        access.mode === 'authorizer' && authorizer.url === undefined,
    }),
    ...authorizerProblems(authorizer),
    ...storeProblems(config),
    ...deliveryProblems(config.delivery),
    ...brokenOf({
      'telemetry.otlp.endpoint must be a URL without user name, password, query and fragment; use telemetry.otlp.headersFile':
        endpoint !== undefined && (!isPlainUrl(endpoint) || /[?#]/.test(endpoint)),
    }),
  ];
}

/** Settings that are allowed but probably not intended, one line each, to be logged at the start. */
export function hints({
  models,
  access: { mode },
  authorizer,
  credit,
  limits,
  delivery,
  telemetry,
  store,
  keys,
}: Config): string[] {
  const unused = (path: string, why: string): string => `${path} is not used: with access.mode ${mode} ${why}`;
  const { url, secretFile, nats } = delivery;
  const { endpoint, headersFile } = telemetry.otlp;
  const ofModels = (hint: string, isHinted: (model: ModelConfig) => boolean): string[] =>
    models.flatMap((model, i) => (isHinted(model) ? [`models[${i}].${hint}`] : []));
  return [
    ...ofModels('engine.url is plain HTTP: prompts and replies cross the network unencrypted', (model) =>
      serverUrls(model).some(crossesNetwork),
    ),
    ...brokenOf({
      [unused('authorizer.url', 'no authorizer is asked')]: mode !== 'authorizer' && authorizer.url !== undefined,
      [unused('keys.source', 'there are no keys')]: mode !== 'keys' && keys.source === 'store',
      [unused(credit.source === 'store' ? 'credit.source' : 'credit.file', 'the gateway is responsible for credit')]:
        mode === 'gateway' && (credit.file !== undefined || credit.source === 'store'),
    }),
    ...(mode === 'gateway' ? changedLimits(limits) : []).map((path) =>
      unused(path, 'the gateway is responsible for limits'),
    ),
    ...brokenOf({
      'delivery.url is not https: usage and its secret are sent unencrypted':
        url !== undefined && secretFile !== undefined && crossesNetwork(url),
      'delivery.nats.tls is off: usage and its secret are sent unencrypted':
        !nats.tls && nats.auth !== 'none' && !nats.servers.map(hostOf).every(isLoopback),
      'store.url is without TLS: the names of accounts and keys are sent unencrypted': storeCrossesNetwork(store),
      'telemetry.otlp.endpoint is not https: its headers are sent unencrypted':
        endpoint !== undefined && headersFile !== undefined && crossesNetwork(endpoint),
    }),
    ...ofModels(
      `contextPerSeat is below ${DECISION_CONTEXT}: longer decision prompts are refused`,
      ({ kind, contextPerSeat }) => kind === 'decision' && contextPerSeat < DECISION_CONTEXT,
    ),
  ];
}

const A_MODEL: Readonly<Record<ModelConfig['kind'], string>> = {
  chat: 'a chat model',
  decision: 'a decision model',
  embedding: 'an embedding model',
  rerank: 'a reranker',
};

/** `at`: the model's index. Paths are below the model's. */
function modelProblems(model: ModelConfig, { models, decisions }: Config, at: number): string[] {
  const { id, kind, gpu, toolFormat, chatTemplate, minDimensions, vision, engine, replicas, prefixCache } = model;
  const { url, socket, model: name, secretFile, tokens } = engine;
  const urls = serverUrls(model);
  const own = engine.kind === 'llama.cpp';
  const isPooling = ['embedding', 'rerank'].includes(kind);
  const ofServers = Object.entries({ url, socket, model: name, secretFile, tokens });
  return [
    ...brokenOf({ 'id must differ from every other model’s id': models.findIndex((other) => other.id === id) < at }),
    ...deviceProblems(model),
    ...brokenOf({
      [`toolFormat must not be set for ${A_MODEL[kind]}, which is offered no tools`]:
        kind !== 'chat' && toolFormat !== 'auto',
      [`vision must not be set for ${A_MODEL[kind]}, which takes no images`]: kind !== 'chat' && vision !== undefined,
      [`chatTemplate must not be set for ${A_MODEL[kind]}, which has no conversations`]:
        isPooling && chatTemplate !== undefined,
      [`engine.kind must be llama-server, vllm or llama.cpp for ${A_MODEL[kind]}`]:
        isPooling && engine.kind === 'sglang',
      [`minDimensions must not be set for ${A_MODEL[kind]}, which makes no vectors`]:
        kind !== 'embedding' && minDimensions !== undefined,
      'vision.devices must not be set where gpu is false': gpu === false && vision?.devices !== undefined,
    }),
    ...ofServers.flatMap(([setting, value]) =>
      brokenOf({ [`engine.${setting} must not be set where engine.kind is llama.cpp`]: own && value !== undefined }),
    ),
    ...(own
      ? []
      : brokenOf({
          'engine must have either url or socket': (url === undefined) === (socket === undefined),
          'engine.url must be a URL without credentials': !urls.every(isPlainUrl),
          'engine.url must not name a server twice': new Set(urls).size < urls.length,
          'engine.url must be https, or name a loopback address, where engine.secretFile is set':
            secretFile !== undefined && urls.some((one) => URL.canParse(one) && crossesNetwork(one)),
          'replicas must be 1 where engine.kind is not llama.cpp: list several servers in engine.url': replicas !== 1,
          'prefixCache.scope must be all where engine.kind is sglang, which does not keep accounts apart':
            engine.kind === 'sglang' && prefixCache.scope !== 'all',
          'vision must not be set where engine.kind is not llama.cpp': vision !== undefined,
          'engine.kind must be llama.cpp for a decision model unless decisions.isolate is false: no external server isolates':
            kind === 'decision' && decisions.isolate,
        })),
  ];
}

function tooLong(path: string, socket = ''): Rules {
  const problem = `${path} must have at most ${SOCKET_PATH_BYTES} bytes as an absolute path`;
  return { [problem]: Buffer.byteLength(socket) > SOCKET_PATH_BYTES };
}

function authorizerProblems({ url, socket }: Config['authorizer']): string[] {
  if (url === undefined) return [];
  if (!URL.canParse(url)) return ['authorizer.url must be a URL'];
  // Keys and their hashes must not cross a network unencrypted.
  return brokenOf({
    'authorizer.url must be https, unless it names a loopback address or authorizer.socket is set':
      socket === undefined && crossesNetwork(url),
  });
}

function deliveryProblems({ url, nats, backoffMinMs, backoffMaxMs }: Config['delivery']): string[] {
  const { auth, secretFile, tls, caFile, certFile, keyFile } = nats;
  const files = Object.entries({ caFile, certFile, keyFile }).flatMap(([key, file]) => (file === undefined ? [] : key));
  return brokenOf({
    'delivery.backoffMaxMs must be at least delivery.backoffMinMs': backoffMaxMs < backoffMinMs,
    'delivery.url must be a URL without user name and password; use delivery.secretFile':
      url !== undefined && !isPlainUrl(url),
    'delivery must name one sink: url or nats.servers': url !== undefined && nats.servers.length > 0,
    'delivery.nats.secretFile must be set where delivery.nats.auth is not none, and only there':
      (auth === 'none') !== (secretFile === undefined),
    [`delivery.nats.tls must be true for delivery.nats.${files.join(' and ')}`]: !tls && files.length > 0,
    'delivery.nats.certFile must be set together with delivery.nats.keyFile':
      (certFile === undefined) !== (keyFile === undefined),
  });
}

function storeProblems({ store, credit, keys, pricing }: Config): string[] {
  const { url, passwordFile, caFile, pollMs, staleMs } = store;
  const sources = Object.entries({ credit, keys, pricing });
  return [
    ...brokenOf({
      'store.url must name user, host and database, no password, and no parameter but sslmode=verify-full':
        url !== undefined && storeAddressOf(url) === undefined,
      'store.url must be set for store.passwordFile': url === undefined && passwordFile !== undefined,
      'store.url must be set for store.caFile': url === undefined && caFile !== undefined,
    }),
    ...sources.flatMap(([name, { source }]) =>
      brokenOf({ [`store.url must be set where ${name}.source is store`]: source === 'store' && url === undefined }),
    ),
    ...brokenOf({
      'pricing.file must not be set where pricing.source is store':
        pricing.source === 'store' && pricing.file !== undefined,
      'credit.file must not be set where credit.source is store':
        credit.source === 'store' && credit.file !== undefined,
      'store.staleMs must be 0 or at least twice store.pollMs, since keys are confirmed no more often':
        keys.source === 'store' && staleMs > 0 && staleMs < 2 * pollMs,
    }),
  ];
}

/** Whether what is sent to this store crosses a network unencrypted. */
function storeCrossesNetwork({ url, caFile }: Config['store']): boolean {
  const address = url === undefined ? undefined : storeAddressOf(url);
  return (
    address !== undefined &&
    !address.tls &&
    caFile === undefined &&
    !/^\//.test(address.host) &&
    !isLoopback(address.host)
  );
}

/** The host of `nats://host`, `nats://host:port` or `nats://[::1]:port`. */
function hostOf(server: string): string {
  return server.replace(/^nats:\/\//, '').replace(/:\d+$/, '');
}

/** The limits that are not the defaults. */
function changedLimits(limits: Config['limits']): string[] {
  return settings(limitsSchema).flatMap(({ path, schema }) => {
    const [group, name] = path.split('.') as [keyof typeof limits, keyof (typeof limits)['chat']];
    return limits[group][name] === schema.default ? [] : [`limits.${path}`];
  });
}

/** Whether a text is a URL without credentials: fetch refuses those, and configurations are shared. */
function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return username === '' && password === '';
}

/** Whether what is sent to this URL crosses a network unencrypted: plain HTTP to another machine. */
function crossesNetwork(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'http:' && !isLoopback(hostname);
}

/** Whether only this machine can reach `host`: a name, or an address; an IPv6 address may be in brackets. */
export function isLoopback(host: string): boolean {
  return /^(?:localhost|::1|\[::1\]|127(?:\.\d{1,3}){3})$/.test(host);
}
