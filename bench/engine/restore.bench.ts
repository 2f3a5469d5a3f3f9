/**
 * What saving and restoring a sequence's whole state take, beside the prefill of its tokens.
 *
 *     node dist/bench/engine/restore.bench.js
 */
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import { loadRuntime } from '../../engine/llama/runtime.js';
import { endless, random150m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const TOKENS = 4000;
const CHUNK = 256;
const RUNS = 5;
const MODELS = { '150m': random150m, hybrid: () => endless('hybrid'), window: () => endless('window') } as const;

async function timed(act: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await act();
  return performance.now() - from;
}

const rows: Row[] = [];
for (const [model, file] of Object.entries(MODELS)) {
  const runtime = await loadRuntime({
    file: await file(),
    kind: 'chat',
    seats: 2,
    contextPerSeat: 4096,
    threads: 1,
    gpu: false,
    flashAttention: 'auto',
    prefillTokensPerStep: CHUNK,
    prefillShare: 100,
    prefixReuse: 'any',
    heartbeatMs: 1000,
  });
  const { decoder } = runtime;
  if (!(decoder instanceof BatchDecoder)) throw new Error('not the layer below the iterators');
  const prefillMs = await timed(async () => {
    for (let at = 0; at < TOKENS; at += CHUNK) {
      const tokens = Uint32Array.from({ length: Math.min(CHUNK, TOKENS - at) }, (_, i) => 60 + ((at + i * 7) % 90));
      await decoder.step([{ kind: 'prefill', sequence: 0, tokens }]);
    }
  });
  const notes = { tokens: new Uint32Array(TOKENS), ends: new Uint32Array(Math.floor(TOKENS / CHUNK)) };
  const [saves, restores]: [number[], number[]] = [[], []];
  let bytes = 0;
  for (let run = 0; run < RUNS; run += 1) {
    let made: Awaited<ReturnType<typeof decoder.saveWhole>> | undefined;
    saves.push(await timed(async () => (made = await decoder.saveWhole(0, notes))));
    const state = made;
    if (!state) throw new Error('not saved');
    bytes = state.bytes;
    restores.push(await timed(() => decoder.restoreWhole(1, state)));
    state.dispose();
    await decoder.truncate(1, 0);
  }
  const [save, restore] = [median(saves), median(restores)];
  rows.push({
    model,
    MiB: bytes / 2 ** 20,
    'prefill, ms': prefillMs,
    'save, ms': save,
    'restore, ms': restore,
    'restore, % of the prefill': (100 * restore) / prefillMs,
  });
  await runtime.dispose();
}

await keep('restore', {
  title: 'What saving and restoring a whole state takes',
  about: [
    `A sequence of ${TOKENS} tokens, evaluated in chunks of ${CHUNK} on 1 compute thread; its state saved and restored into another sequence, medians of ${RUNS}. \`150m\`: a llama model; \`hybrid\` and \`window\`: architectures-limit-native.md. A state is a file in /dev/shm, whose CRC-32 is made when it is saved and checked before it is restored.`,
  ],
  rows,
});
