import { ASK_MS, type LoadReading } from './adapter.js';
import { metricOf, seriesOf } from './metrics-text.js';
import type { ServerClient } from './server-client.js';

/** A server's names for what a {@link LoadReading} has, without their common prefix. Absent: it has no such metric. */
export interface LoadMetrics {
  readonly prefix: string;
  readonly running: string;
  /** Their sum is `computed`. */
  readonly computed: readonly string[];
  readonly waiting?: string;
  readonly preempted?: string;
  /** A share of 1. Of several ranks the fullest counts. */
  readonly kvUse?: string;
}

/** Reads a server's `/metrics`. Returns undefined if it did not answer, or does not report how many requests run. */
export async function readLoad(
  client: Pick<ServerClient, 'ask'>,
  metrics: LoadMetrics,
): Promise<LoadReading | undefined> {
  const answer = await client.ask('GET', '/metrics', ASK_MS);
  if (answer.kind !== 'text') return undefined;
  const valueOf = (name: string | undefined): number | undefined =>
    name === undefined ? undefined : metricOf(answer.text, `${metrics.prefix}:${name}`);
  const running = valueOf(metrics.running);
  if (running === undefined) return undefined;
  const [waiting, preempted] = [valueOf(metrics.waiting), valueOf(metrics.preempted)];
  const kvUses = metrics.kvUse === undefined ? [] : seriesOf(answer.text, `${metrics.prefix}:${metrics.kvUse}`);
  return {
    running,
    computed: metrics.computed.reduce((sum, name) => sum + (valueOf(name) ?? 0), 0),
    ...(waiting !== undefined && { waiting }),
    ...(preempted !== undefined && { preempted }),
    ...(kvUses.length > 0 && { kvUse: Math.max(...kvUses) }),
  };
}
