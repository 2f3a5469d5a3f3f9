/**
 * What `make bench` runs, in this order. First what compares clocks, on the addon that is installed, so that the machine must be
 * quiet once, in one piece; then what comes out the same on a busy machine.
 */

import type { InstalledAddon } from '../support/addon.js';

export interface Bench {
  /** Behind `node dist/bench/`. */
  readonly command: string;
  /** The names that it writes under bench/results, without their endings. */
  readonly results: readonly string[];
  /** What it takes on two cores of an AMD EPYC; its results record what it took. */
  readonly minutes: number;
  /** Whether its figures depend on what else the machine does. */
  readonly quiet: boolean;
  /** Which addon must be in place: npm's, that of `make engine-native`, or either, for benches that compute nothing with it. */
  readonly addon: Addon;
}

export type Addon = InstalledAddon | 'either';

const bench = (addon: Addon, quiet: boolean, minutes: number, command: string, ...results: string[]): Bench => ({
  command,
  results,
  minutes,
  quiet,
  addon,
});

/** Its source, from the repository's root. */
export function sourceOf({ command }: Bench): string {
  return `bench/${command.split(' ')[0]?.replace(/js$/, 'ts') ?? ''}`;
}

export const PLAN: readonly Bench[] = [
  bench('either', true, 1, 'micro/admission.bench.js', 'admission-operations'),
  bench('either', true, 1, 'micro/balances.bench.js', 'balances'),
  bench('either', true, 2, 'micro/hostile.bench.js', 'hostile'),
  bench('either', true, 1, 'micro/inline-size.bench.js', 'inline-size'),
  bench('either', true, 1, 'micro/key-lookup.bench.js', 'key-lookup'),
  bench('either', true, 1, 'micro/link.bench.js', 'link'),
  bench('either', true, 1, 'micro/metrics.bench.js', 'metrics'),
  bench('either', true, 1, 'micro/parse.bench.js', 'parse'),
  bench('either', true, 1, 'micro/tracing.bench.js', 'tracing'),
  bench('either', true, 2, 'micro/v8.bench.js', 'v8'),
  bench('either', true, 3, 'spool/spool.bench.js', 'spool'),
  bench('either', true, 0.3, 'http/tls.bench.js', 'tls'),
  bench('either', true, 5, 'http/server-timing.bench.js', 'server-timing'),
  bench('either', true, 8, 'http/tracing.bench.js', 'tracing-http'),
  bench('either', true, 8, 'console/console.bench.js', 'console'),
  bench('either', true, 2, 'http/expensive-schemas.bench.js', 'expensive-schemas'),
  bench('either', true, 1, 'http/fan-out.bench.js', 'fan-out'),
  bench('either', true, 1, 'vision/transport.bench.js', 'vision-transport'),
  bench('either', true, 15, 'picker/picker.bench.js 3 30', 'picker'),

  bench('prebuilt', true, 3, 'engine/attention.bench.js', 'attention'),
  bench('prebuilt', true, 3, 'engine/decisions.bench.js', 'decisions'),
  bench('prebuilt', true, 3, 'engine/decoders.bench.js', 'decoders'),
  bench('prebuilt', true, 8, 'engine/limit.bench.js', 'engine-limit'),
  bench('prebuilt', true, 3, 'engine/steps.bench.js', 'engine-steps'),
  bench('prebuilt', true, 3, 'engine/reuse.bench.js', 'reuse'),
  bench('prebuilt', true, 10, 'engine/cache-cost.bench.js', 'cache-cost'),
  bench('prebuilt', true, 3, 'engine/grammar.bench.js', 'grammar'),
  bench('prebuilt', true, 3, 'engine/grammar-stall.bench.js', 'grammar-stall'),
  bench('prebuilt', true, 5, 'http/grammar-neighbours.bench.js', 'grammar-neighbours'),
  bench('prebuilt', true, 5, 'http/streams.bench.js', 'http-streams'),
  bench('prebuilt', true, 1, 'http/engine-elsewhere.bench.js', 'engine-elsewhere'),
  bench('prebuilt', true, 25, 'http/llama-server.bench.js', 'llama-server'),
  bench('prebuilt', true, 3, 'architectures/checkpoints.bench.js', 'architectures-checkpoints'),
  bench('prebuilt', true, 30, 'soak/soak.js 30 180', 'soak'),

  bench('native', true, 8, 'engine/limit.bench.js native', 'engine-limit-native'),
  bench('native', true, 3, 'engine/steps.bench.js native', 'engine-steps-native'),
  bench('native', true, 4, 'engine/replicas.bench.js native', 'replicas-limit-native'),
  bench('native', true, 8, 'http/mixed-prompts.bench.js native', 'mixed-prompts-native'),
  bench('native', true, 5, 'engine/prefill.bench.js native', 'engine-prefill'),
  bench('native', true, 1, 'engine/restore.bench.js', 'restore'),
  bench('native', true, 2, 'engine/cache-gaps.bench.js', 'cache-gaps'),
  bench('native', true, 3, 'http/prefix-cache.bench.js', 'prefix-cache'),
  bench('native', true, 25, 'http/llama-server.bench.js native', 'llama-server-native'),
  bench('native', true, 15, 'architectures/limit.bench.js native', 'architectures-limit-native'),
  bench('native', true, 20, 'architectures/chat.bench.js native', 'architectures-chat-native'),
  bench('native', true, 20, 'architectures/llama-server.bench.js native', 'architectures-http-native'),
  bench('native', true, 5, 'vision/gaps.bench.js', 'vision-gaps'),
  bench('native', true, 15, 'overload/overload.bench.js 3 native', 'overload'),
  bench('native', true, 5, 'overload/elsewhere.bench.js', 'overload-elsewhere'),
  bench('native', true, 120, 'overload/patience.bench.js 3 600', 'overload-patience'),

  bench('either', false, 3, 'admission/admission.bench.js', 'admission'),
  bench('either', false, 0.1, 'admission/conversations.bench.js', 'conversations'),
  bench('either', false, 4, 'http/conversations.bench.js', 'conversations-http'),
  bench('either', false, 2, 'http/replica-fairness.bench.js', 'replica-fairness'),
  bench('either', false, 4, 'http/replica-kills.bench.js', 'replica-kills'),
  bench('prebuilt', false, 1, 'engine/repacked.bench.js', 'repacked'),
  bench('prebuilt', false, 2, 'decisions/quality.bench.js', 'decision-quality'),
  bench('prebuilt', false, 2, 'seedling/skills.bench.js', 'seedling-skills'),
  bench('prebuilt', false, 2, 'seedling/long.bench.js', 'seedling-long'),
  bench('prebuilt', false, 1, 'seedling/kv-loss.bench.js', 'seedling-kv'),
  bench('either', false, 60, 'admission/patience/grid.js 60 "" 600', 'patience'),
];
