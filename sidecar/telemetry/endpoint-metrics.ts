/**
 * The process as one endpoint, as the endpoint picker of the Gateway API Inference Extension reads a model server. The
 * picker uses the first series of a name without summing; so these metrics are over all models, and only the cache
 * information has labels, with the names that it expects. Load reports for load balancers have the same load.
 */
import type { Instruments } from './instruments.js';

export interface ModelLoad {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  /** Tokens of running requests, and the capacity, of ready replicas; 0 while none is. */
  readonly heldTokens: number;
  readonly capacityTokens: number;
  /** Size in tokens of the chunks in which prompts' state is reused; the same for all models. */
  readonly blockTokens: number;
}

/** The process at one moment. Usages are from 0 to 1. */
export type EndpointLoad = Readonly<ReturnType<typeof endpointLoad>>;

/** What their names begin with. */
export const ENDPOINT = 'ra_sidecar_endpoint_';

/** Declares the metrics of the process as one endpoint, which are read from the models' loads. */
export function endpointMetrics(
  instruments: Instruments,
  models: ReadonlyMap<string, { readonly load: () => ModelLoad }>,
): void {
  const now = instruments.onceAScrape(() => endpointLoad(models));
  instruments.gauge('ra_sidecar_endpoint_waiting_requests', 'requests', {
    help: 'Requests in the queues of all models (TotalQueuedRequests).',
    advice: 'Above 0 for long on all sidecars: add sidecars.',
    collect: () => now().waiting,
  });
  instruments.gauge('ra_sidecar_endpoint_running_requests', 'requests', {
    help: 'Busy seats of all models (TotalRunningRequests).',
    advice: 'As `ra_sidecar_seats_busy`.',
    collect: () => now().running,
  });
  instruments.gauge('ra_sidecar_endpoint_kv_usage_ratio', 'ratio', {
    help: 'Tokens of running requests over what the KV memory of the ready engines can hold.',
    advice: 'Near 1: conversations are as long as their seats allow.',
    collect: () => now().kvUsage,
  });
  instruments.gauge('ra_sidecar_endpoint_seat_usage_ratio', 'ratio', {
    help: 'Busy seats over all seats (KVCacheUtilization).',
    advice: 'At 1 the next request waits: docs/kubernetes.md.',
    collect: () => now().seatUsage,
  });
  instruments.gauge('ra_sidecar_endpoint_cache_info', '1', {
    labels: ['block_size', 'num_gpu_blocks'],
    help: 'Its labels describe prefix reuse (CacheInfo).',
    advice: 'It is the configuration.',
    collect() {
      const [model] = models.values();
      if (model === undefined) return undefined;
      const { blockTokens } = model.load();
      const blocks = Math.floor(now().capacityTokens / blockTokens);
      return [[{ block_size: String(blockTokens), num_gpu_blocks: String(blocks) }, 1]];
    },
  });
}

/** The sum over all models, as one object. */
export function endpointLoad(models: ReadonlyMap<string, { readonly load: () => ModelLoad }>) {
  const loads = Array.from(models.values(), ({ load }) => load());
  const sum = (of: keyof ModelLoad): number => loads.reduce((all, load) => all + load[of], 0);
  const [seats, running, capacityTokens] = [sum('seats'), sum('busy'), sum('capacityTokens')];
  return {
    seats,
    running,
    waiting: sum('waiting'),
    kvUsage: share(sum('heldTokens'), capacityTokens),
    seatUsage: share(running, seats),
    capacityTokens,
  };
}

/** The quotient, limited to 0 to 1, since a part may be counted a moment before the whole; 0 if the whole is 0. */
function share(part: number, whole: number): number {
  return whole > 0 ? Math.min(1, part / whole) : 0;
}
