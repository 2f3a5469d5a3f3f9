import { accessContradictions } from './access-checks.js';
import { isLoopback } from './loopback.js';
import type { Config } from './types.js';

/** Tokens that a decision prompt may have, and a few to spare for the sequence's own bookkeeping. */
const DECISION_CONTEXT = 8192;

/** What one setting demands of another and is broken, each as `path must …`; none when all hold. */
export function contradictions(config: Config): string[] {
  return [...RULES.flatMap((rule) => rule(config) ?? []), ...accessContradictions(config)];
}

/** Each: what is broken, or undefined. */
const RULES: readonly ((config: Config) => string | readonly string[] | undefined)[] = [
  ({ models }) =>
    models.flatMap(({ id }, i) =>
      models.findIndex((other) => other.id === id) < i
        ? [`models[${i}].id must differ from every other model’s id`]
        : [],
    ),
  ({ operators }) =>
    isLoopback(operators.host) ? undefined : 'operators.host must be a loopback address: this listener asks for no key',
  ({ listen, operators }) =>
    listen.tcp && listen.port !== 0 && listen.port === operators.port
      ? 'operators.port must differ from listen.port'
      : undefined,
  ({ bodies }) =>
    bodies.totalBytes < bodies.chatBytes + bodies.shortBytes
      ? 'bodies.totalBytes must be at least bodies.chatBytes and bodies.shortBytes together'
      : undefined,
  ({ stream }) =>
    stream.totalBufferedBytes < stream.maxBufferedBytes
      ? 'stream.totalBufferedBytes must be at least stream.maxBufferedBytes'
      : undefined,
  ({ usage }) =>
    usage.maxBacklogBytes < 2 * usage.segmentBytes
      ? 'usage.maxBacklogBytes must be at least twice usage.segmentBytes'
      : undefined,
  ({ engine }) =>
    engine.hangMs < 2 * engine.heartbeatMs ? 'engine.hangMs must be at least twice engine.heartbeatMs' : undefined,
  ({ engine }) =>
    engine.backoffMaxMs < engine.backoffMinMs ? 'engine.backoffMaxMs must be at least engine.backoffMinMs' : undefined,
  ({ delivery }) =>
    delivery.backoffMaxMs < delivery.backoffMinMs
      ? 'delivery.backoffMaxMs must be at least delivery.backoffMinMs'
      : undefined,
  ({ delivery }) =>
    delivery.url !== undefined && !isPlainUrl(delivery.url)
      ? 'delivery.url must be a URL without a name and password: the secret has a file of its own'
      : undefined,
  ({ telemetry: { otlp } }) =>
    otlp.endpoint !== undefined && !isBase(otlp.endpoint)
      ? 'telemetry.otlp.endpoint must be a URL without a name and password, a query or a fragment: headers have a file of their own'
      : undefined,
  ({ telemetry: { otlp } }) =>
    otlp.batchRequests > otlp.maxQueued
      ? 'telemetry.otlp.maxQueued must be at least telemetry.otlp.batchRequests'
      : undefined,
];

/** Whether a text is a URL, and holds no credentials: fetch refuses those, and configurations are shown around. */
function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return username === '' && password === '';
}

/** Whether paths can be put behind it. */
function isBase(text: string): boolean {
  return isPlainUrl(text) && !/[?#]/.test(text);
}

/** Whether a secret that goes there can be read on the way: plain HTTP, to another machine. */
function isOpen(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'http:' && !isLoopback(hostname.replace(/^\[|\]$/g, ''));
}

/** What is allowed and yet probably not meant, one line each, to be logged at the start. */
export function hints(config: Config): string[] {
  const { url, secretFile } = config.delivery;
  const { endpoint, headersFile } = config.telemetry.otlp;
  const open = [
    ...(url !== undefined && secretFile !== undefined && isOpen(url)
      ? ['delivery.url is no https: usage and its secret can be read on the way']
      : []),
    ...(endpoint !== undefined && headersFile !== undefined && isOpen(endpoint)
      ? ['telemetry.otlp.endpoint is no https: its headers can be read on the way']
      : []),
  ];
  const short = config.models.flatMap(({ kind, contextPerSeat }, i) =>
    kind === 'decision' && contextPerSeat < DECISION_CONTEXT
      ? [`models[${i}].contextPerSeat is below ${DECISION_CONTEXT}: longer decision prompts are refused`]
      : [],
  );
  return [...open, ...short];
}
