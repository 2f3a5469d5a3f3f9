import { join } from 'node:path';
import t from 'tap';
import type { MachineFacts } from '../../../engine/protocol/inspect-messages.js';
import {
  backendCheck,
  cacheRoomCheck,
  computeCheck,
  coresCheck,
  externalChecks,
  findingChecks,
} from '../../../sidecar/commands/engine-checks.js';
import type { CacheSettings } from '../../../sidecar/app/model-processes.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { embeddedParts } from '../../support/embedded-parts.js';
import { freePort } from '../../support/free-port.js';
import { embeddedTestModel } from '../../support/models.js';
import { ServerStub } from '../../support/server-stub.js';

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

t.test('the backend, why it is used, and whose binaries it has', async (t) => {
  const says = (facts: MachineFacts): string => backendCheck('auto', facts, 0).says;
  t.equal(
    says(FACTS),
    'CPU (auto: available are CPU), the package’s own binaries with ra-engine 0123456789ab: AVX2 FMA',
  );
  t.equal(
    says({ ...CUDA, build: 'localBuild' }),
    'cuda on NVIDIA H100 (auto: available are cuda, CPU), binaries built on this machine with ra-engine 0123456789ab',
  );
});

t.test('the cores, and a quota that limits them', async (t) => {
  t.equal(coresCheck(FACTS, []).says, '2, for 0 compute threads of 0 engines together');
  t.equal(
    coresCheck({ cores: 3, quota: { cores: 2.5, present: 16 } }, []).says,
    '3 (of 16, by a CPU quota of 2.5), for 0 compute threads of 0 engines together',
  );
});

t.test('a GPU library without a GPU is reported, unless the settings exclude the GPU', async (t) => {
  const facts: MachineFacts = { ...FACTS, available: ['vulkan', false] };
  const { level, says, advice } = backendCheck('auto', facts, 0);
  t.match({ level, says }, { level: 'warn', says: /^CPU \(auto: available are vulkan, CPU; no device was found\)/ });
  t.match(advice, /driver.*set gpu to false/);
  t.equal(backendCheck(false, facts, 0).level, 'ok');
});

t.test('a GPU of NVIDIA’s that no backend can use is reported, unless the settings exclude the GPU', async (t) => {
  const says = (nvidia: number): string => backendCheck('auto', FACTS, nvidia).says;
  t.match(backendCheck('auto', FACTS, 8), { level: 'warn', advice: /libcudart.*set gpu to false/ });
  t.match(says(8), /^CPU \(auto: available are CPU\), but NVIDIA’s driver has 8 GPUs; the package’s own binaries/);
  t.match(says(1), /has a GPU;/);
  t.match(backendCheck('auto', { ...FACTS, available: ['vulkan', false] }, 1), { level: 'warn', advice: /libcudart/ });
  t.equal(backendCheck(false, FACTS, 8).level, 'ok');
  t.equal(backendCheck('auto', CUDA, 8).level, 'ok');
});

t.test('kernels that the driver cannot run are reported with what to do about them', async (t) => {
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
});

t.test('seats that are longer than what the model was trained for are a warning', async (t) => {
  const says = 'contextPerSeat is 32,768 tokens, and the model was trained for 8,192';
  const findings = [{ what: 'context', ok: false, needed: false, says } as const];
  const nothing = { head: undefined, load: undefined, memory: undefined, gpuMemory: undefined, sizes: [] };
  const found = findingChecks({ id: 'one', inspected: { kind: 'answer', answer: { ...nothing, findings } } });
  t.match(found, [{ what: 'context of one', level: 'warn', says, advice: /contextPerSeat/ }]);
});

t.test('how a model calls tools, and what to do if that is not its own format', async (t) => {
  const checked = (ok: boolean, says: string) => {
    const answer = {
      head: undefined,
      load: undefined,
      memory: undefined,
      gpuMemory: undefined,
      sizes: [],
      findings: [{ what: 'tool calls', ok, needed: false, says } as const],
    };
    return findingChecks({ id: 'one', inspected: { kind: 'answer', answer } });
  };
  t.same(checked(true, 'its own format'), [{ what: 'tools of one', level: 'ok', says: 'its own format' }]);
  t.match(checked(false, 'by a JSON instruction'), [{ level: 'warn', advice: /chatTemplate, or toolFormat/ }]);
  t.same(findingChecks({ id: 'one', inspected: { kind: 'failed', reason: 'x' } }), []);
});

const GIB = 2 ** 30;

/** An engine whose cache has this size; undefined: by what is free. */
function engine(bytes?: number, more: Partial<CacheSettings> = {}): CacheSettings {
  const prefixCache = { scope: 'account', maxAgeMs: 1000, ...(bytes !== undefined && { bytes }) } as const;
  return {
    kind: 'chat',
    engine: { kind: 'llama.cpp' } as CacheSettings['engine'],
    prefixReuse: 'auto',
    prefixCache,
    ...more,
  };
}

const room = (total: number): { total: number; free: number } => ({ total, free: total / 2 });

t.test('a /dev/shm that is smaller than what prefix caches would take is a warning', async (t) => {
  t.match(cacheRoomCheck(room(8 * GIB), 16 * GIB, [engine()]), {
    level: 'ok',
    says: '4 GiB free of 8 GiB in /dev/shm',
  });
  t.match(cacheRoomCheck(room(GIB / 16), 16 * GIB, [engine()]), {
    level: 'warn',
    says: '32 MiB free of 64 MiB in /dev/shm',
    advice: /a quarter of what is free, at most 8 GiB an engine, is 4 GiB: in a container set --shm-size/,
  });
  t.match(cacheRoomCheck(room(2 * GIB), 16 * GIB, [engine(3 * GIB)]), {
    level: 'warn',
    advice: /prefixCache\.bytes of all engines is 3 GiB: in/,
  });
  t.match(cacheRoomCheck(room(2 * GIB), 16 * GIB, [engine(GIB)]), { level: 'ok' });
  t.match(cacheRoomCheck(undefined, 16 * GIB, [engine()]), {
    level: 'ok',
    says: 'none, since this system has no /dev/shm',
  });
});

t.test('no engine takes more than 8 GiB unless it is set', async (t) => {
  t.match(cacheRoomCheck(room(16 * GIB), 256 * GIB, [engine()]), { level: 'ok' });
  t.match(cacheRoomCheck(room(16 * GIB), 256 * GIB, [engine(), engine()]), { level: 'ok' });
  t.match(cacheRoomCheck(room(16 * GIB), 256 * GIB, [engine(), engine(), engine()]), {
    level: 'warn',
    advice: /is 24 GiB/,
  });
  t.match(cacheRoomCheck(room(16 * GIB), 256 * GIB, [engine(), engine(10 * GIB)]), {
    level: 'warn',
    advice: /prefixCache\.bytes of all engines is 10 GiB, and .* is 8 GiB:/,
  });
});

t.test('engines without a cache are not counted', async (t) => {
  const elsewhere = engine(undefined, { engine: { kind: 'vllm' } as CacheSettings['engine'] });
  const off = engine(9 * GIB, { prefixReuse: 'off' });
  t.match(cacheRoomCheck(room(GIB / 16), 16 * GIB, [elsewhere, off, engine(0)]), {
    level: 'ok',
    says: 'no model has one',
  });
  t.match(cacheRoomCheck(room(GIB), 16 * GIB, [elsewhere, off, engine(GIB)]), { level: 'ok' });
});

async function check(model: object, engine: object): Promise<readonly object[]> {
  const models = [
    { id: 'chat', kind: 'chat', file: await embeddedTestModel(), engine: { kind: 'vllm', ...engine }, ...model },
  ];
  const loaded = loadConfig({ RA_MODELS: JSON.stringify(models) });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const [only] = loaded.config.models;
  if (only === undefined) throw new Error('no model');
  return await externalChecks(only, { clock: systemClock });
}

t.test('the files of this host for a model that is computed elsewhere', async (t) => {
  const dir = t.testdir({ empty: '\n' });
  const files = (model: object, engine: object = {}): Promise<readonly object[]> =>
    check(model, { url: 'http://127.0.0.1:8000', ...engine });
  const fails = (says: RegExp): object => [{ level: 'fail', says }];
  t.match(await files({ file: join(dir, 'none.gguf') }), fails(/none\.gguf cannot be read \(ENOENT\)/));
  t.match(await files({ chatTemplate: join(dir, 'none.jinja') }), fails(/chatTemplate cannot be read/));
  t.match(await files({}, { secretFile: join(dir, 'none') }), fails(/none cannot be read \(ENOENT\)/));
  t.match(await files({}, { secretFile: join(dir, 'empty') }), fails(/empty has no key in its first line/));
});

t.test('each server is asked, and the answer of one that cannot serve the model is shown', async (t) => {
  const stub = await ServerStub.start(t, 'llama-server');
  stub.hosts(await embeddedParts());
  stub.slots = 4;
  const refused = `http://127.0.0.1:${await freePort()}`;
  const [well, wrong, lazy] = await Promise.all([
    check({ seats: 4, contextPerSeat: 4096 }, { kind: 'llama-server', url: stub.url }),
    check({}, { url: [stub.url, refused] }),
    check({ load: 'lazy' }, { url: refused }),
  ]);
  t.match(well, [
    { level: 'ok', says: `computed by llama-server at ${stub.url}, whose prompts are equal to the sidecar’s` },
    {
      level: 'warn',
      says: /it has 4 slots of 4096 tokens, as .* without -np, .* -np 4 -c 16384, .* engine.tokens to 16384/,
    },
  ]);
  t.match(wrong, [
    {
      level: 'fail',
      says: `the external server at ${stub.url}: its /version is answered with 404: is it of engine.kind vllm?`,
    },
    {
      level: 'fail',
      says: `the external server at ${refused}: it refuses connections (ECONNREFUSED): no process listens there`,
    },
  ]);
  t.match(lazy, [{ level: 'warn', says: /ECONNREFUSED/, advice: /correct the engine settings/ }]);
});
