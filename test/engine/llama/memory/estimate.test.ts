import t from 'tap';
import { estimateNeeds } from '../../../../engine/llama/memory/estimate.js';

const MIB = 2 ** 20;

/** A model whose seat has 8 MiB of KV, beside 13 MiB for a step. */
const insights = {
  estimateContextResourceRequirementsV2: ({ sequences = 1 }: { sequences?: number }) =>
    Promise.resolve({ cpuRam: (8 * sequences + 13) * MIB, gpuVram: 0 }),
};

for (const seats of [1, 2, 8]) {
  t.test(`KV and the buffers of a step are distinguished with ${seats} seats`, async (t) => {
    const plan = { seats, contextPerSeat: 1024, batchSize: 512, gpuLayers: 0, flashAttention: false };
    const { cpu } = await estimateNeeds(insights, { cpuRam: 100 * MIB, gpuVram: 0 }, plan);
    t.strictSame(cpu, { weights: 100 * MIB, perSeat: 8 * MIB, compute: 13 * MIB });
  });
}
