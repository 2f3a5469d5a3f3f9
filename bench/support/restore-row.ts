/** What saving and restoring a sequence's whole state take, beside the prefill of its tokens. */
import { decodeOnce } from '../../engine/scheduler/decoder.js';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import { loadRuntime } from '../../engine/llama/runtime.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { Row } from './results.js';
import { median } from './stats.js';

export const TOKENS = 4000;
export const RUNS = 5;

export interface RestoreCase {
  /** For the table. */
  readonly model: string;
  readonly file: string;
  readonly threads: number;
  readonly gpu: EngineSetup['gpu'];
  /** Tokens of a prompt chunk. */
  readonly chunk: number;
  /** Save into memory that the GPU copies by itself, where there is such memory. Absent: in files. */
  readonly pinned?: boolean;
}

/** Bytes of states; what the largest one takes, several times. */
const CACHE = 4 * 2 ** 30;

/** Evaluates one sequence of `TOKENS`, then saves its state and restores it into another one, `RUNS` times. */
export async function restoreRow({ model, file, threads, gpu, chunk, pinned = false }: RestoreCase): Promise<Row> {
  const runtime = await loadRuntime({
    file,
    kind: 'chat',
    seats: 2,
    contextPerSeat: 4096,
    threads,
    gpu,
    flashAttention: 'auto',
    prefillTokensPerStep: chunk,
    prefillShare: 100,
    prefixReuse: 'any',
    prefixCache: { bytes: CACHE, maxAgeMs: 3_600_000, shared: !pinned },
    heartbeatMs: 1000,
  });
  const { decoder } = runtime;
  if (!(decoder instanceof BatchDecoder)) throw new Error('not the layer below the iterators');
  const prefill = async (): Promise<void> => {
    for (let at = 0; at < TOKENS; at += chunk) {
      const tokens = Uint32Array.from({ length: Math.min(chunk, TOKENS - at) }, (_, i) => 60 + ((at + i * 7) % 90));
      await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens }]);
    }
  };
  // The first one is the first of all steps: a GPU loads its kernels then.
  if (gpu !== false) {
    await prefill();
    await decoder.states.truncate(0, 0);
  }
  const idle = monitorEventLoopDelay({ resolution: 1 });
  idle.enable();
  const prefillMs = await timed(prefill);
  idle.disable();
  const notes = { tokens: new Uint32Array(TOKENS), ends: new Uint32Array(Math.floor(TOKENS / chunk)) };
  // As much is pinned as such a state takes.
  if (decoder.pages) {
    const sized = await decoder.states.saveWhole(0, notes).catch(() => undefined);
    await decoder.pages.settled();
    sized?.dispose();
  }
  const [saves, restores, copies]: [number[], number[], number[]] = [[], [], []];
  let bytes = 0;
  const delays = monitorEventLoopDelay({ resolution: 1 });
  delays.enable();
  for (let run = 0; run < RUNS; run += 1) {
    let made: Awaited<ReturnType<typeof decoder.states.saveWhole>> | undefined;
    saves.push(await timed(async () => (made = await decoder.states.saveWhole(0, notes))));
    const state = made;
    if (!state) throw new Error('not saved');
    bytes = state.bytes;
    restores.push(await timed(() => decoder.states.restoreWhole(1, state)));
    state.dispose();
    // llama.cpp makes a copy with the next decode.
    const token = { kind: 'prefill', sequence: 1, tokens: Uint32Array.of(60) } as const;
    const alone = await timed(() => decodeOnce(decoder, [token]));
    await decoder.states.truncate(1, 0);
    await decoder.states.copy(1, 0);
    copies.push((await timed(() => decodeOnce(decoder, [token]))) - alone);
    await decoder.states.truncate(1, 0);
  }
  delays.disable();
  const memory = decoder.pages?.memory ?? 'files';
  await runtime.dispose();
  const [save, restore, copy] = [median(saves), median(restores), median(copies)];
  return {
    model,
    memory,
    MiB: bytes / 2 ** 20,
    'prefill, ms': prefillMs,
    'save, ms': save,
    'restore, ms': restore,
    'restore, % of the prefill': (100 * restore) / prefillMs,
    'restore, GB/s': bytes / 1e6 / restore,
    'copy of a sequence, ms': copy,
    'event loop delay of the prefill p99, ms': idle.percentile(99) / 1e6,
    'event loop delay p99, ms': delays.percentile(99) / 1e6,
    'event loop delay, most, ms': delays.max / 1e6,
  };
}

async function timed(act: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await act();
  return performance.now() - from;
}
