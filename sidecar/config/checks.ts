import { accessContradiction } from './access-checks.js';
import { isLoopback } from './loopback.js';
import type { Config } from './types.js';

/** Tokens that a decision prompt may have, and a few to spare for the sequence's own bookkeeping. */
const DECISION_CONTEXT = 8192;

/** What one setting demands of another: the first that is broken, as `path must …`; undefined when all hold. */
export function contradiction(config: Config): string | undefined {
  const { listen, operators, models, bodies, stream, usage, engine, delivery } = config;
  const seen = new Set<string>();
  for (const [i, { id }] of models.entries()) {
    if (seen.has(id)) return `models[${i}].id must differ from every other model’s id`;
    seen.add(id);
  }
  if (!isLoopback(operators.host)) return 'operators.host must be a loopback address: this listener asks for no key';
  if (listen.tcp && listen.port !== 0 && listen.port === operators.port)
    return 'operators.port must differ from listen.port';
  if (bodies.totalBytes < bodies.chatBytes + bodies.shortBytes)
    return 'bodies.totalBytes must be at least bodies.chatBytes and bodies.shortBytes together';
  if (stream.totalBufferedBytes < stream.maxBufferedBytes)
    return 'stream.totalBufferedBytes must be at least stream.maxBufferedBytes';
  if (usage.maxBacklogBytes < 2 * usage.segmentBytes)
    return 'usage.maxBacklogBytes must be at least twice usage.segmentBytes';
  if (engine.hangMs < 2 * engine.heartbeatMs) return 'engine.hangMs must be at least twice engine.heartbeatMs';
  if (engine.backoffMaxMs < engine.backoffMinMs) return 'engine.backoffMaxMs must be at least engine.backoffMinMs';
  if (delivery.backoffMaxMs < delivery.backoffMinMs)
    return 'delivery.backoffMaxMs must be at least delivery.backoffMinMs';
  if (delivery.url !== undefined && !isPlainUrl(delivery.url))
    return 'delivery.url must be a URL without a name and password: the secret has a file of its own';
  return accessContradiction(config);
}

/** Whether a text is a URL, and holds no credentials: fetch refuses those, and configurations are shown around. */
function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return username === '' && password === '';
}

/** What is allowed and yet probably not meant, one line each, to be logged at the start. */
export function hints(config: Config): string[] {
  const { url, secretFile } = config.delivery;
  const bare = url !== undefined && secretFile !== undefined && new URL(url);
  const readable = bare && bare.protocol === 'http:' && !isLoopback(bare.hostname.replace(/^\[|\]$/g, ''));
  const open = readable ? ['delivery.url is no https: usage and its secret can be read on the way'] : [];
  const short = config.models.flatMap(({ kind, contextPerSeat }, i) =>
    kind === 'decision' && contextPerSeat < DECISION_CONTEXT
      ? [`models[${i}].contextPerSeat is below ${DECISION_CONTEXT}: longer decision prompts are refused`]
      : [],
  );
  return [...open, ...short];
}
