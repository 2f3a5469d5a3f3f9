import t from 'tap';
import { join } from 'node:path';
import { usableCores } from '../../../engine/protocol/usable-cores.js';
import { planReplicas, uniformNames, type Inspectors, gpuUuids } from '../../../sidecar/app/replica-plans.js';
import type { ModelConfig } from '../../../sidecar/config/config.js';
import type { MachineFacts } from '../../../sidecar/engine-client/inspector.js';

const OWN = { kind: 'llama.cpp', cancelWaitMs: 1, silentMs: 1, tokenMs: 1 } as const;
const SIZES = { seats: 8, contextPerSeat: 2048, threads: 0 };
const MODEL = { id: 'm', file: '/m.gguf', engine: OWN, ...SIZES, gpu: 'auto' } as ModelConfig;

/** A host with these devices, on only some of which the model fits. */
function host(devices: readonly string[], fits: (visible: string) => boolean = () => true): Inspectors {
  return {
    machine: async (_, { CUDA_VISIBLE_DEVICES: visible }) => {
      const seen = visible === undefined ? devices : visible.split(',').flatMap((at) => devices[Number(at)] ?? []);
      return { kind: 'answer', answer: { gpu: seen.length > 0 && 'cuda', devices: seen } as unknown as MachineFacts };
    },
    fits: async (_, { CUDA_VISIBLE_DEVICES: visible = '' }) => fits(visible),
    uuids: () => undefined,
  };
}

const BLIND: Inspectors = {
  machine: () => Promise.reject(new Error('asked')),
  fits: () => Promise.reject(new Error('asked')),
  uuids: () => undefined,
};

function plan(
  replicas: ModelConfig['replicas'],
  ask: Inspectors,
  changes: Partial<ModelConfig> = {},
): ReturnType<typeof planReplicas> {
  return planReplicas({ ...MODEL, ...changes, replicas }, ask);
}

t.test('one process sees all devices, and no inspector is started', async (t) => {
  t.strictSame(await plan(1, BLIND), {
    kind: 'planned',
    replicas: [{ seats: 8, contextPerSeat: 2048, threads: 0, devices: [], environment: {} }],
  });
});

t.test('on a CPU a number is so many processes, which share the cores', async (t) => {
  const found = await plan(3, BLIND, { gpu: false });
  const threads = Math.max(1, Math.floor((usableCores().cores - 1) / 3));
  t.match(found, { kind: 'planned', replicas: [{ threads, devices: [] }, { threads }, { threads }] });
  t.match(await plan(2, host([]), { threads: 4 }), { replicas: [{ threads: 4 }, { threads: 4 }] });
  t.match(await plan(2, host([]), { cores: '0-3' }), { replicas: [{ threads: 0, cores: '0-3' }, { cores: '0-3' }] });
  t.match(await plan('auto', host([])), { replicas: { length: 1 } });
});

t.test('on GPUs a number is one for each of the first devices', async (t) => {
  t.match(await plan(2, host(['A', 'B', 'C'])), {
    replicas: [
      { devices: ['0'], environment: { CUDA_VISIBLE_DEVICES: '0', GGML_VK_VISIBLE_DEVICES: '0' } },
      { devices: ['1'], environment: { CUDA_VISIBLE_DEVICES: '1' } },
    ],
  });
  t.strictSame(await plan(3, host(['A', 'B'])), { kind: 'unfit', why: 'replicas is 3, and there are 2 devices: A, B' });
});

t.test('auto is one for each device on which the model fits, or one over all of them', async (t) => {
  const devices = ['A', 'B', 'C'];
  t.match(
    await plan(
      'auto',
      host(devices, (visible) => visible !== '1'),
    ),
    { replicas: [{ devices: ['0'] }, { devices: ['2'] }] },
  );
  t.match(
    await plan(
      'auto',
      host(devices, () => false),
    ),
    { replicas: [{ devices: [] }] },
  );
});

t.test('a list has the differences, and a missing device is named', async (t) => {
  const all = await plan(
    [
      { devices: [0, 1], seats: 2, contextPerSeat: 8192 },
      { devices: 2, threads: 1 },
    ],
    host(['A', 'B', 'C']),
  );
  t.match(all, {
    replicas: [
      { devices: ['0', '1'], seats: 2, contextPerSeat: 8192, threads: 0 },
      { devices: ['2'], seats: 8, contextPerSeat: 2048, threads: 1 },
    ],
  });
  t.strictSame(await plan([{ devices: 0 }, { devices: [1, 7] }], host(['A', 'B'])), {
    kind: 'unfit',
    why: 'replica 1 (devices 1, 7) is not there: an engine that may see them alone sees 1',
  });
  const failing: Inspectors = { ...BLIND, machine: async () => ({ kind: 'failed', reason: 'no driver' }) };
  t.match(await plan([{ devices: 'GPU-1' }, {}], failing), { why: 'replica 0 (device GPU-1) is not there: no driver' });
  t.match(await plan('auto', failing), { kind: 'unfit', why: 'no driver' });
});

t.test('on Vulkan the index is found of each device that llama.cpp does not pass over', async (t) => {
  const all = ['CPU', 'A', 'other driver of A', 'B', 'A'];
  const asked: string[] = [];
  const vulkan: Inspectors = {
    machine: async (gpu, { GGML_VK_VISIBLE_DEVICES: visible }) => {
      if (visible !== undefined) asked.push(visible);
      const devices = visible === undefined ? ['A', 'B', 'A'] : [all[Number(visible)] ?? ''];
      if (devices[0] === '') return { kind: 'failed', reason: 'Invalid Vulkan device index' };
      t.equal(gpu, visible === undefined ? 'auto' : 'vulkan', 'none falls back to a CPU');
      return { kind: 'answer', answer: { gpu: 'vulkan', devices } as unknown as MachineFacts };
    },
    fits: async (_, { GGML_VK_VISIBLE_DEVICES: visible }) => visible !== '3',
    uuids: () => undefined,
  };
  t.match(await plan('auto', vulkan), { replicas: [{ devices: ['1'] }, { devices: ['4'] }] });
  t.strictSame(asked, ['0', '1', '2', '3', '4']);
  t.match(await plan(2, vulkan), {
    replicas: [{ environment: { GGML_VK_VISIBLE_DEVICES: '1' } }, { environment: { GGML_VK_VISIBLE_DEVICES: '3' } }],
  });
});

t.test('a device that is named by its index and by its UUID ends the start, where the UUIDs are known', async (t) => {
  const seen: Inspectors = {
    machine: async (_, { CUDA_VISIBLE_DEVICES: visible = '' }) => {
      const devices = visible.split(',');
      return { kind: 'answer', answer: { gpu: 'cuda', devices } as unknown as MachineFacts };
    },
    fits: async () => true,
    uuids: () => ['GPU-aa1', 'GPU-bb2'],
  };
  t.strictSame(await plan([{ devices: 0 }, { devices: [1, 'GPU-aa'] }], seen), {
    kind: 'unfit',
    why: 'replica 1 (devices 1, GPU-aa): GPU-aa is the same device as 0 of replica 0',
  });
  t.match(await plan([{ devices: ['GPU-bb2', 1] }], seen), { kind: 'unfit', why: /1 is the same device as GPU-bb2/ });
  t.match(await plan([{ devices: 0 }, { devices: 'GPU-bb2' }, { devices: 'MIG-1' }, {}], seen), { kind: 'planned' });
  const unknown = { ...seen, uuids: () => undefined };
  t.match(await plan([{ devices: 0 }, { devices: 'GPU-aa1' }], unknown), { kind: 'planned' });
});

t.test('devices of several models can be compared by their UUIDs, otherwise by what CUDA’s variable has', async (t) => {
  const uuids = ['GPU-aa1', 'GPU-bb2'];
  const named = (devices: readonly string[], visible: string, known?: readonly string[]): readonly string[] =>
    uniformNames({ devices, environment: { CUDA_VISIBLE_DEVICES: visible } }, known);
  t.strictSame(named(['1', 'GPU-aa'], '1,GPU-aa', uuids), ['GPU-bb2', 'GPU-aa1']);
  t.strictSame(named(['0'], '1', uuids), ['GPU-bb2'], 'where this process sees some of the devices');
  t.strictSame(named(['MIG-1', '5'], 'MIG-1,5', uuids), ['MIG-1', '5']);
  t.strictSame(named(['0', 'GPU-aa'], '2,GPU-aa'), ['2', 'GPU-aa']);
});

t.test('each external server is a replica, and no inspector is started', async (t) => {
  const replica = { ...SIZES, devices: [], environment: {} };
  const url = ['http://127.0.0.1:8000/', 'https://host/base'];
  t.strictSame(await plan(1, BLIND, { engine: { ...OWN, kind: 'vllm', url } }), {
    kind: 'planned',
    replicas: [
      { ...replica, server: { url: 'http://127.0.0.1:8000' } },
      { ...replica, server: { url: 'https://host/base' } },
    ],
  });
  t.strictSame(await plan(1, BLIND, { engine: { ...OWN, kind: 'llama-server', socket: '/run/llama' } }), {
    kind: 'planned',
    replicas: [{ ...replica, server: { url: 'http://localhost', socket: '/run/llama' } }],
  });
});

/** As NVIDIA's driver writes it. */
const information = (model: string, uuid: string): string =>
  `Model: \t\t ${model}\nIRQ:   \t\t 120\nGPU UUID: \t ${uuid}\nVideo BIOS: \t 96.00\nDevice Minor: \t 0\n`;

t.test('by the order of the bus, where CUDA counts so', async (t) => {
  const alike = t.testdir({
    '0000:3b:00.0': { information: information('NVIDIA L4', 'GPU-b') },
    '0000:1a:00.0': { information: information('NVIDIA L4', 'GPU-a') },
  });
  t.strictSame(gpuUuids(undefined, alike), ['GPU-a', 'GPU-b']);
});

t.test('the fastest of unequal ones may be first, unless the order is set', async (t) => {
  const unequal = t.testdir({
    '0000:01:00.0': { information: information('NVIDIA T4', 'GPU-a') },
    '0000:02:00.0': { information: information('NVIDIA L4', 'GPU-b') },
  });
  t.equal(gpuUuids(undefined, unequal), undefined);
  t.strictSame(gpuUuids('PCI_BUS_ID', unequal), ['GPU-a', 'GPU-b']);
});

t.test('without the driver, or what it should say, they are not known', async (t) => {
  const folder = t.testdir({ '0000:01:00.0': { information: 'Model: x\n' } });
  t.equal(gpuUuids('PCI_BUS_ID', folder), undefined);
  t.equal(gpuUuids('PCI_BUS_ID', join(folder, 'none')), undefined);
});
