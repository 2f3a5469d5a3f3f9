import { join } from 'node:path';
import t from 'tap';
import { gpuUuids } from '../../../sidecar/app/gpu-uuids.js';

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
