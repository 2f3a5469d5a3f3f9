import type { GgufInsights, Llama } from 'node-llama-cpp';
import t from 'tap';
import { planLoad, type PlanSetup } from '../../../engine/llama/load-plan.js';

const SETUP: PlanSetup = {
  kind: 'chat',
  seats: 4,
  contextPerSeat: 1024,
  flashAttention: 'auto',
  prefillTokensPerStep: 0,
};
const INSIGHTS = { totalLayers: 33, ggufFileInfo: { architectureMetadata: {} } } as unknown as GgufInsights;

function layers(gpu: Llama['gpu'], gpuLayers?: number): Promise<number> {
  const setup = { ...SETUP, ...(gpuLayers !== undefined && { gpuLayers }) };
  return planLoad({ gpu }, INSIGHTS, setup).then((plan) => plan.gpuLayers);
}

t.test('a GPU gets all layers whatever memory is free, or as many as are set', async (t) => {
  t.equal(await layers('cuda'), 33);
  t.equal(await layers('cuda', 10), 10);
  t.equal(await layers('vulkan', 0), 0);
  t.equal(await layers('cuda', 80), 33, 'no more than there are');
  t.equal(await layers(false, 10), 0);
});

t.test('prompt chunks and batches suit the device', async (t) => {
  t.match(await planLoad({ gpu: 'cuda' }, INSIGHTS, SETUP), { prefillTokensPerStep: 1024, batchSize: 1028 });
  t.match(await planLoad({ gpu: false }, INSIGHTS, SETUP), { prefillTokensPerStep: 256, batchSize: 260 });
});
