/**
 * What saving and restoring a sequence's whole state take on a CPU.
 *
 *     node dist/bench/engine/restore.bench.js
 */
import { endless, random150m, randomWideState } from '../support/models.js';
import { restoreRow, RUNS, TOKENS } from '../support/restore-row.js';
import { keep, type Row } from '../support/results.js';

const CHUNK = 256;
const MODELS = {
  '150m': random150m,
  wide: randomWideState,
  hybrid: () => endless('hybrid'),
  window: () => endless('window'),
} as const;

const rows: Row[] = [];
for (const [model, file] of Object.entries(MODELS)) {
  rows.push(await restoreRow({ model, file: await file(), threads: 1, gpu: false, chunk: CHUNK }));
}

await keep('restore', {
  title: 'What saving and restoring a whole state takes',
  about: [
    `A sequence of ${TOKENS} tokens, evaluated in chunks of ${CHUNK} on 1 compute thread; its state saved and restored into another sequence, medians of ${RUNS}. \`150m\`: a llama model; \`wide\`: one whose state is as large as that of 8 billion weights; \`hybrid\` and \`window\`: architectures-limit-native.md. A state is a file in /dev/shm, which is mapped for each copy. The event loop's delay, during which JavaScript did nothing else, is over all saves, restores and releases, measured every millisecond, which is a part of it; beside it that of the prefill.`,
  ],
  rows,
});
