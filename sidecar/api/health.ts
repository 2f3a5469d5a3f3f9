import type { EngineState } from '../engine-client/engine.js';
import type { Exchange } from '../http/exchange.js';
import { ANY_ERRORS, type PlainRoute } from './route.js';
import type { HostedModel, Services } from './services.js';

/** The process is alive and its event loop runs. */
export const HEALTHZ: PlainRoute = {
  serve: healthz,
  reference: {
    path: '/healthz',
    method: 'get',
    id: 'health',
    tag: 'service',
    summary: 'Whether the process is alive',
    description: 'Its event loop turns.',
    key: false,
    answer: 'Health',
    errors: ANY_ERRORS,
  },
};

/** 200 if this sidecar takes work, else 503 (docs/http.md#readiness). It needs no key, so it names no model, file or reason. */
export const READYZ: PlainRoute = {
  serve: readyz,
  reference: {
    path: '/readyz',
    method: 'get',
    id: 'readiness',
    tag: 'service',
    summary: 'Whether the server takes work',
    description:
      'Whether it accepts work (docs/http.md#readiness). The operators’ listener has the reasons under the same path.',
    key: false,
    answer: 'Readiness',
    other: [503, 'Readiness', 'Not ready.'],
    errors: ANY_ERRORS,
  },
};

/** The readiness, as load balancers and tools ask servers of models for it. */
export const HEALTH: PlainRoute = {
  serve: health,
  reference: {
    path: '/health',
    method: 'get',
    id: 'healthState',
    tag: 'service',
    summary: 'The readiness, for load balancers and tools',
    description: 'As `/readyz` without the parts, with the `ok` of other servers of models.',
    key: false,
    answer: 'HealthState',
    other: [503, 'HealthState', 'Not ready.'],
    errors: ANY_ERRORS,
  },
};

export function healthz(exchange: Exchange): void {
  exchange.reply({ status: 200, body: JSON.stringify({ status: 'ok' }) });
}

/** GET /health: 200 `ok`, or 503 with the state. */
export function health(exchange: Exchange, services: Parts): void {
  const { status } = stateOf(services);
  const ready = status === 'ready';
  exchange.reply({ status: ready ? 200 : 503, body: JSON.stringify({ status: ready ? 'ok' : status }) });
}

type Parts = Pick<
  Services,
  'leaving' | 'spool' | 'credit' | 'fenced' | 'staleKeys' | 'models' | 'promptHosts' | 'promptsReady'
>;

/** ready: takes work; starting: will take work without an operator; unhealthy: does not, and may need an operator; draining: has been ended. */
type PartState = 'ready' | 'starting' | 'unhealthy' | 'draining';

interface State {
  /** The worst state of its parts, or `draining`. */
  readonly status: PartState;
  readonly parts: Readonly<Record<string, PartState>>;
}

/** The readiness with its reasons, for the operators' listener. */
export interface ReasonedState extends State {
  /** One short text for each part that is not ready. */
  readonly reasons: readonly string[];
}

export function readyz(exchange: Exchange, services: Parts): void {
  replyReadiness(exchange, stateOf(services));
}

/** The same on the operators' listener, with the reasons. */
export function readyzWithReasons(exchange: Exchange, services: Parts): void {
  replyReadiness(exchange, readinessOf(services));
}

/** The same for other pages of the operators' listener. */
export function readinessOf(services: Parts): ReasonedState {
  const { status, parts } = stateOf(services);
  return { status, parts, reasons: reasonsOf(services) };
}

function replyReadiness(exchange: Exchange, state: State): void {
  exchange.reply({ status: state.status === 'ready' ? 200 : 503, body: JSON.stringify(state) });
}

function stateOf(services: Parts): State {
  const engines = awaited(services).map((model) => shownState(model, services));
  const started = modelsReady(services) && promptsReady(services) ? 'ready' : 'starting';
  const parts: State['parts'] = {
    models: engines.includes('lost') ? 'unhealthy' : engines.includes('draining') ? 'draining' : started,
    usage: services.spool.health.ok ? 'ready' : 'unhealthy',
    ...(services.credit && { credit: services.credit.known ? 'ready' : 'starting' }),
    // Another process has its place for good: what needs the store is refused until an operator stops one of them.
    ...(services.fenced?.() === true && { store: 'unhealthy' as const }),
    ...(services.staleKeys?.() === true && { keys: 'unhealthy' as const }),
    // A host that ended is restarted within a moment; one that cannot be started needs an operator. Batches can wait for theirs.
    ...(services.promptHosts?.().some(({ lane, problem }) => lane !== 'batch' && problem) && { prompts: 'unhealthy' }),
  };
  const states = Object.values(parts);
  const worst = (['unhealthy', 'starting'] as const).find((state) => states.includes(state)) ?? 'ready';
  return { status: services.leaving() ? 'draining' : worst, parts };
}

function reasonsOf(services: Parts): string[] {
  const { health } = services.spool;
  return [
    ...(services.leaving() ? ['draining'] : []),
    ...(health.ok ? [] : [`spool_unhealthy: ${health.why}`]),
    ...(services.credit?.known === false ? ['credit_gate_unavailable'] : []),
    ...(services.fenced?.() === true ? ['store: another sidecar started with this dataDir or a copy of it'] : []),
    ...(services.staleKeys?.() === true ? ['gateway_unavailable: the store has not confirmed its keys'] : []),
    ...(services.models.size === 0 ? ['cold'] : []),
    ...(modelsReady(services) && !promptsReady(services) ? ['starting: prompt hosts'] : []),
    ...promptProblems(services),
    ...awaited(services)
      .filter(({ engine }) => engine.state !== 'ready')
      .map((model) => `${shownState(model, services)}: ${model.id}${why(model.engine)}`),
    ...[...services.models.values()].flatMap(onDemandProblem),
    ...[...services.models.values()].flatMap(replicaProblems),
  ];
}

/** An engine that a drain has ended is lost without a problem. */
function shownState({ engine: { state, problem } }: HostedModel, { leaving }: Parts): EngineState | 'draining' {
  return state === 'lost' && problem === undefined && leaving() ? 'draining' : state;
}

/** A model that is loaded when a request needs it, and last could not be. */
function onDemandProblem({ id, engine }: HostedModel): string[] {
  const failed = engine.onDemand && engine.state !== 'ready' && engine.problem !== undefined;
  return failed ? [`${engine.state}: ${id}${why(engine)}`] : [];
}

/** Replicas that do not serve while others do, each with its reason. */
function replicaProblems({ id, engine: { state, replicas } }: HostedModel): string[] {
  if (state !== 'ready') return [];
  return replicas.flatMap((replica, at) =>
    replica.state === 'ready' || replica.state === 'unloaded'
      ? []
      : [`${replica.state}: ${id}: replica ${at}${why(replica)}`],
  );
}

function why({ problem }: { readonly problem: string | undefined }): string {
  return problem === undefined ? '' : `: ${problem}`;
}

/** Prompt hosts that could not be started, each with its reason. */
function promptProblems({ promptHosts }: Parts): string[] {
  return (promptHosts?.() ?? []).flatMap(({ lane, problem }) =>
    problem === undefined ? [] : [`prompt host: ${lane}: ${problem}`],
  );
}

/** Models that have to be loaded. */
function awaited({ models }: Parts): HostedModel[] {
  return [...models.values()].filter(({ engine }) => !engine.onDemand);
}

function modelsReady(services: Parts): boolean {
  return services.models.size > 0 && awaited(services).every(({ engine }) => engine.state === 'ready');
}

/** No model is served before prompts can be prepared. */
function promptsReady(services: Parts): boolean {
  return services.promptsReady?.() !== false;
}
