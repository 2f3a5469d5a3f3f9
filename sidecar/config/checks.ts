import { accessContradictions, accessHints } from './access-checks.js';
import { deliveryContradictions, deliveryHints } from './delivery-checks.js';
import { deviceProblems } from './devices.js';
import { engineContradictions, engineHints } from './engine-checks.js';
import { isLoopback } from './loopback.js';
import { otlpContradictions, otlpHints } from './otlp-checks.js';
import type { Config } from './types.js';

/** Tokens that a decision prompt may have, and a few for the sequence's own bookkeeping. */
const DECISION_CONTEXT = 8192;

/** Violated rules between settings, each as `path must …`; empty if there is none. */
export function contradictions(config: Config): string[] {
  return [
    ...RULES.flatMap((rule) => rule(config) ?? []),
    ...engineContradictions(config),
    ...accessContradictions(config),
    ...deliveryContradictions(config),
    ...otlpContradictions(config),
  ];
}

/** Each returns the violation, or undefined. */
const RULES: readonly ((config: Config) => string | readonly string[] | undefined)[] = [
  ({ models }) =>
    models.flatMap(({ id }, i) =>
      models.findIndex((other) => other.id === id) < i
        ? [`models[${i}].id must differ from every other model’s id`]
        : [],
    ),
  ({ models }) => models.flatMap((model, i) => deviceProblems(model).map((problem) => `models[${i}].${problem}`)),
  ({ models }) =>
    models.flatMap(({ kind, toolFormat }, i) =>
      kind === 'decision' && toolFormat !== 'auto'
        ? [`models[${i}].toolFormat must not be set for a decision model, which is offered no tools`]
        : [],
    ),
  ({ models }) =>
    models.flatMap(({ kind, vision }, i) =>
      kind === 'decision' && vision !== undefined
        ? [`models[${i}].vision must not be set for a decision model, which takes no images`]
        : [],
    ),
  ({ models }) =>
    models.flatMap(({ gpu, vision }, i) =>
      gpu === false && vision?.devices !== undefined
        ? [`models[${i}].vision.devices must not be set where gpu is false`]
        : [],
    ),
  ({ operators }) =>
    isLoopback(operators.host) || operators.secretFile !== undefined
      ? undefined
      : 'operators.host must be a loopback address: without operators.secretFile this listener requires no key',
  ({ listen, operators }) =>
    listen.tcp && listen.port !== 0 && listen.port === operators.port
      ? 'operators.port must differ from listen.port'
      : undefined,
  ({ tls }) =>
    (tls.keyFile === undefined) === (tls.certFile === undefined)
      ? undefined
      : 'tls.keyFile and tls.certFile must be set together',
  ({ tls, listen }) =>
    tls.keyFile !== undefined && !listen.tcp
      ? 'tls.keyFile must not be set without listen.tcp: a Unix socket stays without TLS'
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
  // A record may wait for its group that long before it is written at all, and the spool is then unhealthy without a fault.
  ({ usage }) =>
    usage.maxUnsyncedMs < 2 * usage.groupMs ? 'usage.maxUnsyncedMs must be at least twice usage.groupMs' : undefined,
  ({ engine }) =>
    engine.hangMs < 2 * engine.heartbeatMs ? 'engine.hangMs must be at least twice engine.heartbeatMs' : undefined,
  ({ engine }) =>
    engine.backoffMaxMs < engine.backoffMinMs ? 'engine.backoffMaxMs must be at least engine.backoffMinMs' : undefined,
];

/** Settings that are allowed but probably not intended, one line each, to be logged at the start. */
export function hints(config: Config): string[] {
  const short = config.models.flatMap(({ kind, contextPerSeat }, i) =>
    kind === 'decision' && contextPerSeat < DECISION_CONTEXT
      ? [`models[${i}].contextPerSeat is below ${DECISION_CONTEXT}: longer decision prompts are refused`]
      : [],
  );
  return [...engineHints(config), ...accessHints(config), ...deliveryHints(config), ...otlpHints(config), ...short];
}
