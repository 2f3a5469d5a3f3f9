/**
 * The process as one endpoint, as the endpoint picker of the Gateway API Inference Extension reads a model server. The
 * picker uses the first series of a name without summing; so these metrics are over all models, and only the cache
 * information has labels, with the names that it expects.
 */
import { PREFIX, type GaugeDefinition } from '../instruments.js';

export const ENDPOINT_WAITING: GaugeDefinition = {
  name: `${PREFIX}endpoint_waiting_requests`,
  type: 'gauge',
  unit: 'requests',
  labels: [],
  help: 'Requests in the queues of all models: the protocol’s TotalQueuedRequests.',
  advice:
    'Above 0 for long on all sidecars: add sidecars. On one only: requests are not balanced by it; see kubernetes.md.',
};

export const ENDPOINT_RUNNING: GaugeDefinition = {
  name: `${PREFIX}endpoint_running_requests`,
  type: 'gauge',
  unit: 'requests',
  labels: [],
  help: 'Seats held over all models, the protocol’s TotalRunningRequests: a request with several replies counts once for each.',
  advice: 'As `ra_sidecar_seats_busy`.',
};

export const ENDPOINT_KV_USAGE: GaugeDefinition = {
  name: `${PREFIX}endpoint_kv_usage_ratio`,
  type: 'gauge',
  unit: 'ratio',
  labels: [],
  help: 'Tokens of running requests over all that the KV memory of the ready engines can hold, 0 to 1, the protocol’s KVCacheUtilization.',
  advice: 'Near 1: conversations are as long as their seats allow. State kept for reuse is not counted.',
};

export const ENDPOINT_SEAT_USAGE: GaugeDefinition = {
  name: `${PREFIX}endpoint_seat_usage_ratio`,
  type: 'gauge',
  unit: 'ratio',
  labels: [],
  help: 'Seats held over all seats, 0 to 1: the part of the KV memory that is reserved, since a seat reserves its whole context for its request.',
  advice: 'At 1 the next request waits. For pickers it is the better KVCacheUtilization: see kubernetes.md.',
};

export const ENDPOINT_CACHE: GaugeDefinition<'block_size' | 'num_gpu_blocks'> = {
  name: `${PREFIX}endpoint_cache_info`,
  type: 'gauge',
  unit: '1',
  labels: ['block_size', 'num_gpu_blocks'],
  help: 'Always 1; its labels describe prefix reuse: tokens per block, and blocks over all ready engines, the protocol’s CacheInfo.',
  advice: 'It is the configuration.',
};

export const ENDPOINT_METRICS = [
  ENDPOINT_WAITING,
  ENDPOINT_RUNNING,
  ENDPOINT_KV_USAGE,
  ENDPOINT_SEAT_USAGE,
  ENDPOINT_CACHE,
] as const;
