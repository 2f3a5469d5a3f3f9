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

t.test('gaps are closed where all layers are on a GPU and a token reads no weights of its own', async (t) => {
  const closes = async (gpuLayers: number, about: object = {}): Promise<boolean> => {
    const insights = { totalLayers: 33, ggufFileInfo: { architectureMetadata: about } } as unknown as GgufInsights;
    return (await planLoad({ gpu: 'cuda' }, insights, { ...SETUP, gpuLayers })).closesGaps;
  };
  t.same([await closes(33), await closes(10), await closes(33, { expert_count: 8 })], [true, false, false]);
});

t.test('prompt chunks and batches suit the device', async (t) => {
  t.match(await planLoad({ gpu: 'cuda' }, INSIGHTS, SETUP), { prefillTokensPerStep: 1024, batchSize: 1028 });
  t.match(await planLoad({ gpu: false }, INSIGHTS, SETUP), { prefillTokensPerStep: 256, batchSize: 260 });
  const none = { ...SETUP, gpuLayers: 0 };
  t.match(await planLoad({ gpu: 'cuda' }, INSIGHTS, none), { prefillTokensPerStep: 256 }, 'the CPU computes all of it');
});
