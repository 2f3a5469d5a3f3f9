import type { MetricDefinition } from '../instruments.js';
import { ACCESS_METRICS } from './access.js';
import { ENDPOINT_METRICS } from './endpoint.js';
import { GEN_AI_METRICS } from './gen-ai.js';
import { HTTP_METRICS } from './http.js';
import { OTLP_METRICS } from './otlp.js';
import { PREFIX_CACHE_METRICS } from './prefix-cache.js';
import { PROCESS_METRICS } from './processes.js';
import { PROGRAM_METRICS } from './program.js';
import { QUEUE_METRICS } from './queue.js';
import { USAGE_METRICS } from './usage.js';

/** All metrics of this project by subject, in the order of the reference. */
export const METRICS: readonly { readonly title: string; readonly metrics: readonly MetricDefinition[] }[] = [
  { title: 'Requests to models', metrics: GEN_AI_METRICS },
  { title: 'Seats and the queue', metrics: QUEUE_METRICS },
  { title: 'The whole process, for endpoint pickers', metrics: ENDPOINT_METRICS },
  { title: 'Engines and the prompt host', metrics: PROCESS_METRICS },
  { title: 'Prefixes in host memory', metrics: PREFIX_CACHE_METRICS },
  { title: 'HTTP', metrics: HTTP_METRICS },
  { title: 'Keys, authorizer, credit', metrics: ACCESS_METRICS },
  { title: 'Usage', metrics: USAGE_METRICS },
  { title: 'The program', metrics: PROGRAM_METRICS },
  { title: 'Export by OTLP', metrics: OTLP_METRICS },
];
