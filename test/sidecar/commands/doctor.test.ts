import t from 'tap';
import type { MachineFacts } from '../../../engine/protocol/inspect-messages.js';
import {
  backendCheck,
  callsCheck,
  computeCheck,
  configurationChecks,
  contextCheck,
  coresCheck,
} from '../../../sidecar/commands/doctor.js';

const FACTS: MachineFacts = {
  gpu: false,
  available: [false],
  devices: [],
  build: 'prebuilt',
  addon: '0123456789abcdef',
  features: 'CPU : AVX2 = 1 | AVX512 = 0 | FMA = 1',
  cores: 2,
  memory: { total: 1, free: 1 },
  gpuMemory: undefined,
};
const CUDA: MachineFacts = { ...FACTS, available: ['cuda', false], gpu: 'cuda', devices: ['NVIDIA H100'] };

t.test('the backend, why it is used, and whose binaries it has', (t) => {
  const says = (facts: MachineFacts): string => backendCheck('auto', facts, 0).says;
  t.equal(
    says(FACTS),
    'CPU (auto: available are CPU), the package’s own binaries with ra-engine 0123456789ab: AVX2 FMA',
  );
  t.equal(
    says({ ...CUDA, build: 'localBuild' }),
    'cuda on NVIDIA H100 (auto: available are cuda, CPU), binaries built on this machine with ra-engine 0123456789ab',
  );
  t.end();
});

t.test('the cores, and a quota that limits them', async (t) => {
  t.equal(coresCheck(FACTS, []).says, '2, for 0 compute threads of 0 engines together');
  t.equal(
    coresCheck({ cores: 3, quota: { cores: 2.5, present: 16 } }, []).says,
    '3 (of 16, by a CPU quota of 2.5), for 0 compute threads of 0 engines together',
  );
});

t.test('a GPU library without a GPU is reported, unless the settings exclude the GPU', (t) => {
  const facts: MachineFacts = { ...FACTS, available: ['vulkan', false] };
  const { level, says, advice } = backendCheck('auto', facts, 0);
  t.match({ level, says }, { level: 'warn', says: /^CPU \(auto: available are vulkan, CPU; no device was found\)/ });
  t.match(advice, /driver.*set gpu to false/);
  t.equal(backendCheck(false, facts, 0).level, 'ok');
  t.end();
});

t.test('a GPU of NVIDIA’s that no backend can use is reported, unless the settings exclude the GPU', (t) => {
  const says = (nvidia: number): string => backendCheck('auto', FACTS, nvidia).says;
  t.match(backendCheck('auto', FACTS, 8), { level: 'warn', advice: /libcudart.*set gpu to false/ });
  t.match(says(8), /^CPU \(auto: available are CPU\), but NVIDIA’s driver has 8 GPUs; the package’s own binaries/);
  t.match(says(1), /has a GPU;/);
  t.match(backendCheck('auto', { ...FACTS, available: ['vulkan', false] }, 1), { level: 'warn', advice: /libcudart/ });
  t.equal(backendCheck(false, FACTS, 8).level, 'ok');
  t.equal(backendCheck('auto', CUDA, 8).level, 'ok');
  t.end();
});

t.test('kernels that the driver cannot run are reported with what to do about them', (t) => {
  t.same(computeCheck({ kind: 'answer', answer: { ms: 129.4 } }, CUDA), {
    what: 'GPU kernels',
    level: 'ok',
    says: 'the first step of a small model took 129 ms',
  });
  const reason = 'llama.cpp cannot load it: the inspector aborted (device-error)';
  const failed = (facts: MachineFacts) => computeCheck({ kind: 'failed', reason }, facts);
  t.match(failed(CUDA), { level: 'fail', says: reason, advice: /newer driver.*GPU=cuda make engine-native/ });
  t.match(failed({ ...CUDA, build: 'localBuild' }), { level: 'fail', advice: /build them on this machine/ });
  const full = { kind: 'failed', reason: 'llama.cpp cannot load it: failed to allocate buffer' } as const;
  t.match(computeCheck(full, CUDA), { level: 'warn', advice: /while nothing else uses the GPU/ });
  t.match(failed({ ...CUDA, gpu: 'vulkan' }), { level: 'fail', advice: /build them on this machine/ });
  t.end();
});

t.test('seats that are longer than what the model was trained for are a warning', (t) => {
  const says = 'contextPerSeat is 32,768 tokens, and the model was trained for 8,192';
  const findings = [{ what: 'context', ok: false, needed: false, says } as const];
  const nothing = { head: undefined, load: undefined, memory: undefined, gpuMemory: undefined, sizes: [] };
  const found = contextCheck({ id: 'one', inspected: { kind: 'answer', answer: { ...nothing, findings } } });
  t.match(found, [{ what: 'context of one', level: 'warn', says, advice: /contextPerSeat/ }]);
  t.end();
});

t.test('how a model calls tools, and what to do if that is not its own format', (t) => {
  const checked = (ok: boolean, says: string) => {
    const answer = {
      head: undefined,
      load: undefined,
      memory: undefined,
      gpuMemory: undefined,
      sizes: [],
      findings: [{ what: 'tool calls', ok, needed: false, says } as const],
    };
    return callsCheck({ id: 'one', inspected: { kind: 'answer', answer } });
  };
  t.same(checked(true, 'its own format'), [{ what: 'tools of one', level: 'ok', says: 'its own format' }]);
  t.match(checked(false, 'by a JSON instruction'), [{ level: 'warn', advice: /chatTemplate, or toolFormat/ }]);
  t.same(callsCheck({ id: 'one', inspected: { kind: 'failed', reason: 'x' } }), []);
  t.end();
});

t.test('which configuration is in force, and one with which no sidecar starts', (t) => {
  const found = { kind: 'config', hints: ['a is not used'], source: '/etc/ra.jsonc' } as const;
  t.strictSame(configurationChecks(found), [
    { what: 'configuration', level: 'ok', says: '/etc/ra.jsonc' },
    { what: 'configuration', level: 'warn', says: 'a is not used' },
  ]);
  t.match(configurationChecks({ ...found, unservable: 'config: models must be set' })[0], {
    level: 'fail',
    says: 'config: models must be set',
    advice: /RA_CONFIG/,
  });
  t.end();
});
