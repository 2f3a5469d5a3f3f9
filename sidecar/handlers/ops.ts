import type { Exchange } from '../http/exchange.js';
import type { Services } from './services.js';

/** GET /healthz: the process is alive and its event loop turns. */
export function healthz(exchange: Exchange): void {
  exchange.reply({ status: 200, body: JSON.stringify({ status: 'ok' }) });
}

/**
 * GET /readyz: this sidecar can take work: it does not drain, usage can be recorded, balances are known where credit is
 * checked, and every model it hosts is loaded, but for those that are loaded when they are wanted. 503 otherwise, with the
 * reasons.
 */
export function readyz(exchange: Exchange, services: Pick<Services, 'draining' | 'spool' | 'credit' | 'models'>): void {
  const reasons = [
    ...(services.draining() ? ['draining'] : []),
    ...(services.spool.health.ok ? [] : ['spool_unhealthy']),
    ...(services.credit?.known === false ? ['credit_gate_unavailable'] : []),
    ...(services.models.size === 0 ? ['cold'] : []),
    ...[...services.models.values()]
      .filter(({ engine }) => engine.state !== 'ready' && !engine.onDemand)
      .map(({ id, engine }) => `${engine.state}: ${id}${engine.problem === undefined ? '' : `: ${engine.problem}`}`),
  ];
  exchange.reply({
    status: reasons.length === 0 ? 200 : 503,
    body: JSON.stringify(reasons.length === 0 ? { status: 'ready' } : { status: 'not ready', reasons }),
  });
}

/** GET /metrics on the operators' listener, in Prometheus' text format. */
export async function metrics(exchange: Exchange, services: Pick<Services, 'metrics'>): Promise<void> {
  const { contentType, text } = await services.metrics.render();
  exchange.reply({ status: 200, headers: { 'Content-Type': contentType }, body: text });
}
