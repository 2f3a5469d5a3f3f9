import t from 'tap';
import { loadConfig } from '../../../sidecar/config/config.js';
import { deviceEnvironment, deviceProblems, devicesOf } from '../../../sidecar/config/devices.js';

t.test('a process sees only its own devices', async (t) => {
  t.strictSame(deviceEnvironment([], { CUDA_VISIBLE_DEVICES: '0,1' }), {});
  t.strictSame(deviceEnvironment(['0', '2'], {}), { CUDA_VISIBLE_DEVICES: '0,2', GGML_VK_VISIBLE_DEVICES: '0,2' });
  t.strictSame(deviceEnvironment(['MIG-4a'], {}), { CUDA_VISIBLE_DEVICES: 'MIG-4a' });
});

t.test('indices refer to the devices that this process sees', async (t) => {
  const here = { CUDA_VISIBLE_DEVICES: 'GPU-7, GPU-8', GGML_VK_VISIBLE_DEVICES: '2,4' };
  t.strictSame(
    deviceEnvironment(['1', 'GPU-9', '5'], here),
    { CUDA_VISIBLE_DEVICES: 'GPU-8,GPU-9,-1' },
    'a missing one stays in the list',
  );
  t.strictSame(deviceEnvironment(['1', '5'], here), {
    CUDA_VISIBLE_DEVICES: 'GPU-8,-1',
    GGML_VK_VISIBLE_DEVICES: '4,-1',
  });
});

t.test('devices are named once, and not without a GPU', async (t) => {
  t.strictSame(devicesOf({ devices: 3 }), ['3']);
  const replicas = [{ devices: [0, 1] }, { devices: 'GPU-1' }, { devices: [2, 1] }, {}];
  t.strictSame(deviceProblems({ gpu: 'auto', replicas }), ['replicas[2].devices must not name 1 again']);
  t.strictSame(deviceProblems({ gpu: 'cuda', replicas: [{ devices: [4, 4] }] }), [
    'replicas[0].devices must not name 4 again',
  ]);
  t.strictSame(deviceProblems({ gpu: false, replicas: [{}, { devices: 0 }] }), [
    'replicas[1].devices must not be set where gpu is false',
  ]);
  t.strictSame(deviceProblems({ gpu: false, replicas: 4 }), []);
});

t.test('values of `replicas`', async (t) => {
  const load = (replicas: unknown): ReturnType<typeof loadConfig> => {
    const models = [{ id: 'm', kind: 'chat', file: 'embedded', replicas }];
    return loadConfig({ RA_MODELS: JSON.stringify(models) });
  };
  for (const good of [
    1,
    64,
    'auto',
    [{}],
    [
      { devices: 0, seats: 1 },
      { devices: [1, 'GPU-5e-9'], cores: '0-3' },
    ],
  ])
    t.match(load(good), { kind: 'config', config: { models: [{ replicas: good }] } });
  const whole = 'models[0].replicas must be a number from 1 to 64, auto, or a list of at most 64 replicas';
  const device = 'must be the index of a GPU, the UUID of one or of a MIG instance, or a list of these';
  for (const [bad, problem] of [
    [0, whole],
    [65, whole],
    ['all', whole],
    [[], whole],
    [true, whole],
    [[{ seats: 0 }], 'models[0].replicas[0].seats must be at least 1'],
    [[{ device: 1 }], 'models[0].replicas[0].device is not a known field'],
    [[{}, { devices: -1 }], `models[0].replicas[1].devices ${device}`],
    [[{ devices: 'cuda0' }], `models[0].replicas[0].devices ${device}`],
    [[{ devices: 1 }, { devices: 1 }], 'models[0].replicas[1].devices must not name 1 again'],
  ] as const) {
    const loaded = load(bad);
    t.ok(loaded.kind === 'invalid' && loaded.line.startsWith(`config: ${problem}`), JSON.stringify(loaded));
  }
});
