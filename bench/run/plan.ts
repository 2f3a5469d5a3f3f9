/**
 * What `make bench` runs, in this order. First what compares clocks, on the addon that is installed, so that the machine must be
 * quiet once, in one piece; then what comes out the same on a busy machine.
 */

import type { InstalledAddon } from '../support/addon.js';

export interface Bench {
  /** After `node dist/bench/`. */
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
  bench('either', true, 0.2, 'micro/admission.bench.js', 'admission-operations'),
  bench('either', true, 1.2, 'spool/spool.bench.js', 'spool'),
  bench('either', true, 3, 'http/server-timing.bench.js', 'server-timing'),
  bench('either', true, 8, 'store/take.bench.js', 'store-take'),

  bench('prebuilt', true, 2, 'engine/decisions.bench.js', 'decisions'),
  bench('prebuilt', true, 5.5, 'engine/limit.bench.js', 'engine-limit'),
  bench('prebuilt', true, 37, 'engine/speculation.bench.js', 'speculation'),
  bench('prebuilt', true, 9, 'embeddings/beside.bench.js', 'embeddings'),
  bench('prebuilt', true, 2, 'embeddings/chat.bench.js', 'embeddings-chat'),
  bench('prebuilt', true, 0.7, 'engine/grammar.bench.js', 'grammar'),
  bench('prebuilt', true, 1, 'http/streams.bench.js', 'http-streams'),
  bench('prebuilt', true, 13, 'http/llama-server.bench.js', 'llama-server'),
  bench('prebuilt', true, 13, 'architectures/llama-server.bench.js', 'architectures-http'),

  bench('native', true, 5.5, 'engine/limit.bench.js native', 'engine-limit-native'),
  bench('native', true, 6, 'engine/prefill.bench.js native', 'engine-prefill'),
  bench('native', true, 0.4, 'engine/restore.bench.js', 'restore'),
  bench('native', true, 13, 'http/llama-server.bench.js native', 'llama-server-native'),
  bench('native', true, 4.5, 'architectures/limit.bench.js native', 'architectures-limit-native'),
  bench('native', true, 5.5, 'architectures/chat.bench.js native', 'architectures-chat-native'),
  bench('native', true, 7, 'architectures/llama-server.bench.js native', 'architectures-http-native'),
  bench('native', true, 10, 'overload/overload.bench.js 2 native', 'overload'),

  bench('either', false, 1.3, 'admission/admission.bench.js', 'admission'),
  bench('either', false, 5, 'admission/sessions.bench.js', 'sessions'),
  bench('either', false, 0.7, 'admission/lent.bench.js', 'lent-seats'),
  bench('either', false, 0.5, 'engine/speculation-gpu.bench.js', 'speculation-gpu'),
  bench('either', false, 7.5, 'soak/soak.js 6 90', 'soak'),
  bench('either', true, 3, 'http/sessions.bench.js', 'sessions-http'),
  bench('either', true, 5, 'http/batch-beside.bench.js', 'batch-beside'),
  bench('prebuilt', false, 0.3, 'decisions/quality.bench.js', 'decision-quality'),
];
