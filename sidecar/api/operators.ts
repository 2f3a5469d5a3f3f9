import { bearerOf } from '../access/bearer.js';
import type { KeysInForce } from '../access/key-file-watch.js';
import { contractError } from '../domain/errors.js';
import type { Exchange } from '../http/exchange.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { HostedModel, Services } from './services.js';

/**
 * GET /keys on the operators' listener: the keys file that this sidecar follows and which content of it is in force, so
 * that a command that changed the file can see when the change is. It has no key, no hash of one and no id.
 */
export async function keysInForce(
  exchange: Exchange,
  inForce: (() => Promise<KeysInForce>) | undefined,
): Promise<void> {
  if (inForce === undefined) exchange.fail(contractError('not_found', 'This sidecar uses no keys file.'));
  else exchange.reply({ status: 200, body: JSON.stringify(await inForce()) });
}

/** GET /healthz: the process is alive and its event loop runs. */
export function healthz(exchange: Exchange): void {
  exchange.reply({ status: 200, body: JSON.stringify({ status: 'ok' }) });
}

/** GET /health, which load balancers and tools ask of servers of models: 200 `ok` if this sidecar takes work, 503 with its state otherwise. */
export function health(exchange: Exchange, services: Parts): void {
  const { status } = stateOf(services);
  const ready = status === 'ready';
  exchange.reply({ status: ready ? 200 : 503, body: JSON.stringify({ status: ready ? 'ok' : status }) });
}

/** The parts of the readiness. */
type Parts = Pick<Services, 'leaving' | 'spool' | 'credit' | 'models' | 'promptHosts' | 'promptsReady'>;

/** ready: takes work; starting: will take work without an operator; unhealthy: does not, and may need an operator. */
type PartState = 'ready' | 'starting' | 'unhealthy';

interface State {
  /** The worst state of its parts, or `draining`. */
  readonly status: PartState | 'draining';
  readonly parts: Readonly<Record<string, PartState>>;
}

/** The readiness with its reasons, for the operators' listener. */
export interface ReasonedState extends State {
  /** One short text for each part that is not ready. */
  readonly reasons: readonly string[];
}

/**
 * GET /readyz: 200 if this sidecar takes work, 503 otherwise. It does if it does not drain, usage can be recorded, balances are
 * known where credit is checked, prompt hosts have started and can be started again, and a replica of each model is loaded, except models that are
 * loaded on demand. The route needs no key, so the answer has the state of each part and no model, file or reason.
 */
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
  const engines = awaited(services).map(({ engine }) => engine.state);
  const parts: State['parts'] = {
    models: engines.includes('lost')
      ? 'unhealthy'
      : modelsReady(services) && promptsReady(services)
        ? 'ready'
        : 'starting',
    usage: services.spool.health.ok ? 'ready' : 'unhealthy',
    ...(services.credit && { credit: services.credit.known ? 'ready' : 'starting' }),
    // A host that ended is restarted within a moment; one that cannot be started needs an operator.
    ...(promptProblems(services).length > 0 && { prompts: 'unhealthy' }),
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
    ...(services.models.size === 0 ? ['cold'] : []),
    ...(modelsReady(services) && !promptsReady(services) ? ['starting: prompt hosts'] : []),
    ...promptProblems(services),
    ...awaited(services)
      .filter(({ engine }) => engine.state !== 'ready')
      .map(({ id, engine }) => `${engine.state}: ${id}${why(engine)}`),
    ...[...services.models.values()].flatMap(onDemandProblem),
    ...[...services.models.values()].flatMap(replicaProblems),
  ];
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

/** The secrets with which all metrics can be read on the public listener. */
export interface Scrapers {
  has(secret: string): boolean;
}

/** The access to /metrics on the public listener. */
export interface PublicMetrics {
  readonly metrics: Pick<Metrics, 'render' | 'renderEndpoint'>;
  /** Whether a request without the secret may see the load of the process; otherwise it is refused. */
  readonly open: boolean;
  /** Undefined: no request gets more than that. */
  readonly scrapers: Scrapers | undefined;
}

/**
 * GET /metrics on the public listener, if configured: the load of the process for an endpoint picker, which cannot send a key;
 * all metrics for a request with a scraper's secret. A wrong secret is refused, so that the mistake is noticed.
 */
export async function publicMetrics(exchange: Exchange, { metrics, open, scrapers }: PublicMetrics): Promise<void> {
  const secret = bearerOf(exchange.head);
  const known = secret !== undefined && scrapers?.has(secret) === true;
  if (!known && (!open || exchange.head.header('authorization') !== undefined)) {
    exchange.fail(contractError('invalid_api_key', 'The secret for these metrics is missing or unknown.'));
    return;
  }
  const { contentType, text } = await (known ? metrics.render() : metrics.renderEndpoint());
  exchange.reply({ status: 200, headers: { 'Content-Type': contentType }, body: text });
}

/** GET /metrics on the operators' listener, in Prometheus' text format. */
export async function operatorsMetrics(exchange: Exchange, services: Pick<Services, 'metrics'>): Promise<void> {
  const { contentType, text } = await services.metrics.render();
  exchange.reply({ status: 200, headers: { 'Content-Type': contentType }, body: text });
}
