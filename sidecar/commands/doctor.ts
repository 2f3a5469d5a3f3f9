/** `ra-sidecar doctor`: what the sidecar would use of this machine, why, and what prevents it from serving. */
import { readdirSync } from 'node:fs';
import type { Config, LoadedConfig, ModelConfig } from '../config/config.js';
import { EMBEDDED_MODEL } from '../engine-client/weight-files.js';
import { inspect, type Inspected, type MachineFacts } from '../engine-client/inspector.js';
import { EXIT, parsed } from './command.js';
import { orUsage } from './help.js';
import type { Check } from './check.js';
import { externalChecks } from './external-check.js';
import { imageChecks } from './image-finding.js';
import { guarded, hostChecks, isRunning } from './host-checks.js';
import type { Io } from './io.js';
import { size } from './layout.js';
import { isExternal, withFile } from './model-files.js';
import { loadText, seatsText } from './model-text.js';
import { replicasToSize } from './replica-sizes.js';
import { cacheCheck } from './cache-check.js';
import { reasons, serves, shortOfMemory, sizeModels, type Sizing } from './sizing.js';
import { COMMANDS } from './command-table.js';

const GPU_ADVICE =
  'set gpu of the model to auto or false, or install the driver and a llama.cpp for it (GPU=... make engine-native)';

const DEVICE_ADVICE =
  'if there is a GPU, check its driver and the permissions of /dev/dri or /dev/nvidia*; if not, set gpu to false';

const LIBRARY_ADVICE =
  'the CUDA backend needs its npm packages, CUDA 13’s libcudart, libcublas and libcublasLt (docs/deploy.md), and access to /dev/nvidia*; to use the CPU, set gpu to false';

const KERNELS_ADVICE = (gpu: MachineFacts['gpu'], build: MachineFacts['build']): string =>
  build === 'prebuilt' && gpu === 'cuda'
    ? 'the package’s kernels may need a newer driver for this GPU: update it, or run GPU=cuda make engine-native (docs/engine.md)'
    : 'the libraries may be of another GPU or driver: build them on this machine (GPU=... make engine-native)';

const SOURCE_ADVICE = 'let RA_CONFIG name the configuration file that has the models';

const ROOM_ADVICE = 'to be sure, run this again while nothing else uses the GPU';

const CONTEXT_ADVICE = 'set contextPerSeat to at most what the model was trained for';

const CALLS_ADVICE =
  'a template of the model’s maker that lists tools, as chatTemplate, or toolFormat: docs/tool-formats.md';

/** Of a digest, hex characters that are printed. */
const DIGEST = 12;

const BINARIES: Readonly<Record<MachineFacts['build'], string>> = {
  prebuilt: 'the package’s own binaries',
  localBuild: 'binaries built on this machine',
};

/** Resolves with the exit code: 1 if a check fails. */
export function doctor(loaded: LoadedConfig, args: readonly string[], io: Io): Promise<number> {
  const { config } = loaded;
  return orUsage('doctor', io, async () => {
    const { values } = parsed(COMMANDS.doctor, args);
    const checks = [
      ...configurationChecks(loaded),
      ...(await hostChecks(config, io.clock)),
      ...(await engineChecks(config, io)),
    ];
    const failed = checks.filter(({ level }) => level === 'fail').length;
    io.out(values.json ? `${JSON.stringify({ ok: failed === 0, checks }, null, 2)}\n` : text(checks));
    return failed === 0 ? EXIT.done : EXIT.failed;
  });
}

/** Where the configuration comes from, whether a sidecar starts with it, and the warnings of its own checks. */
export function configurationChecks({ hints, source, unservable }: Omit<LoadedConfig, 'config'>): Check[] {
  const what = 'configuration';
  return [
    unservable === undefined
      ? { what, level: 'ok', says: source }
      : { what, level: 'fail', says: unservable, advice: SOURCE_ADVICE },
    ...hints.map((says): Check => ({ what, level: 'warn', says })),
  ];
}

function text(checks: readonly Check[]): string {
  const width = Math.max(...checks.map(({ what }) => what.length)) + 2;
  const lines = checks.flatMap(({ what, level, says, advice }) => [
    `${level.padEnd(6)}${what.padEnd(width)}${says}`,
    ...(advice === undefined ? [] : [`${' '.repeat(6 + width)}-> ${advice}`]),
  ]);
  const count = (level: Check['level']): number => checks.filter((check) => check.level === level).length;
  return `${lines.join('\n')}\n\n${count('ok')} ok, ${count('warn')} warnings, ${count('fail')} failures\n`;
}

async function engineChecks(config: Config, io: Io): Promise<Check[]> {
  const checks: Check[] = [];
  let machine: MachineFacts | undefined;
  for (const gpu of new Set(config.models.filter((model) => !isExternal(model)).map((model) => model.gpu))) {
    const asked = await inspect('machine', { gpu }, io);
    if (asked.kind === 'failed') checks.push(noBackend(asked.reason));
    else {
      if (!machine) checks.push(...memoryChecks(asked.answer));
      machine = asked.answer;
      checks.push(backendCheck(gpu, asked.answer, nvidiaGpus()));
      if (asked.answer.gpu !== false)
        checks.push(computeCheck(await inspect('compute', { gpu, file: EMBEDDED_MODEL }, io), asked.answer));
    }
  }
  return [...checks, ...(await guarded('models', () => modelChecks(config, machine, io)))];
}

async function modelChecks(config: Config, machine: MachineFacts | undefined, io: Io): Promise<Check[]> {
  const running = await isRunning(config);
  const wanted = await replicasToSize(config.models.filter((model) => !isExternal(model)).map(withFile));
  const found = wanted.filter((one) => one.kind === 'replica');
  const sizings = await sizeModels(
    found.map(({ toSize }) => toSize),
    { load: false, running },
    io,
  );
  return [
    ...(machine ? [coresCheck(machine, sizings)] : []),
    await cacheCheck(found.map(({ model }) => model)),
    ...wanted.flatMap((one) => (one.kind === 'unfit' ? [unfitCheck(one.model, one.why)] : [])),
    ...(await Promise.all(config.models.filter(isExternal).map((model) => externalChecks(model, io)))).flat(),
    ...sizings.flatMap((sizing, i) => [
      modelCheck(found[i]?.model, sizing),
      ...contextCheck(sizing),
      ...callsCheck(sizing),
      ...(sizing.inspected.kind === 'answer' ? imageChecks(sizing.id, sizing.inspected.answer.findings) : []),
    ]),
  ];
}

function noBackend(reason: string): Check {
  return { what: 'backend', level: 'fail', says: reason, advice: GPU_ADVICE };
}

/** How many GPUs NVIDIA’s kernel driver has. A container sees all of the host's, also those that it may not use. */
function nvidiaGpus(): number {
  try {
    return readdirSync('/proc/driver/nvidia/gpus').length;
  } catch {
    return 0;
  }
}

/** The device that an engine with this setting computes on. `nvidia`: how many GPUs NVIDIA’s driver has. */
export function backendCheck(gpu: ModelConfig['gpu'], facts: MachineFacts, nvidia: number): Check {
  const { available, devices, build, addon, features } = facts;
  const found = available.map((name) => (name === false ? 'CPU' : name)).join(', ');
  const why = gpu === 'auto' ? `auto: available are ${found}` : `gpu is ${String(gpu)}; available are ${found}`;
  const binaries = `${BINARIES[build]} with ra-engine ${addon.slice(0, DIGEST)}`;
  if (gpu === 'auto' && facts.gpu === false && nvidia > 0) {
    const says = `CPU (${why}), but NVIDIA’s driver has ${nvidia === 1 ? 'a GPU' : `${nvidia} GPUs`}; ${binaries}`;
    return { what: 'backend', level: 'warn', says, advice: LIBRARY_ADVICE };
  }
  if (gpu === 'auto' && facts.gpu === false && available.some((name) => name !== false)) {
    return {
      what: 'backend',
      level: 'warn',
      says: `CPU (${why}; no device was found), ${binaries}`,
      advice: DEVICE_ADVICE,
    };
  }
  const used = [...features.matchAll(/(\w+) = 1/g)].map(([, name]) => name).join(' ');
  const says =
    facts.gpu === false
      ? `CPU (${why}), ${binaries}: ${used}`
      : `${facts.gpu} on ${devices.join(', ')} (${why}), ${binaries}`;
  return { what: 'backend', level: 'ok', says };
}

/** Whether kernels run on the device: a library may be loaded, and its device found, without one that the driver can run. */
export function computeCheck(
  computed: Inspected<'compute'>,
  { gpu, build }: Pick<MachineFacts, 'gpu' | 'build'>,
): Check {
  const what = 'GPU kernels';
  if (computed.kind === 'answer') {
    return { what, level: 'ok', says: `the first step of a small model took ${computed.answer.ms.toFixed(0)} ms` };
  }
  // A sidecar that runs beside may have all of it.
  if (/memory|alloc/i.test(computed.reason)) return { what, level: 'warn', says: computed.reason, advice: ROOM_ADVICE };
  return { what, level: 'fail', says: computed.reason, advice: KERNELS_ADVICE(gpu, build) };
}

function memoryChecks({ memory, gpuMemory }: MachineFacts): Check[] {
  const line = ({ total, free }: { total: number; free: number }): string => `${size(free)} free of ${size(total)}`;
  return [
    { what: 'memory', level: 'ok', says: line(memory) },
    ...(gpuMemory ? [{ what: 'GPU memory', level: 'ok', says: line(gpuMemory) } as const] : []),
  ];
}

/** Engines share the cores, and the sidecar needs one too. */
export function coresCheck({ cores, quota }: Pick<MachineFacts, 'cores' | 'quota'>, sizings: readonly Sizing[]): Check {
  const onCpu = sizings.flatMap(({ inspected }) =>
    inspected.kind === 'answer' && inspected.answer.load?.gpu === false ? [inspected.answer.load.threads] : [],
  );
  const all = sizings.map(({ inspected }) => (inspected.kind === 'answer' ? (inspected.answer.load?.threads ?? 0) : 0));
  const threads = all.reduce((sum, each) => sum + each, 0);
  const found =
    quota === undefined ? String(cores) : `${cores} (of ${quota.present}, by a CPU quota of ${quota.cores})`;
  const says = `${found}, for ${threads} compute threads of ${sizings.length} engines together`;
  // Compute threads spin while they wait for each other: if one is delayed by other work, all are.
  if (cores > 1 && onCpu.some((each) => each >= cores)) {
    return { what: 'cores', level: 'warn', says, advice: 'leave one core free: set threads to 0 or a lower number' };
  }
  if (onCpu.length === 0 || threads <= cores) return { what: 'cores', level: 'ok', says };
  const advice = 'engines that run at the same time slow each other down: set threads of each model';
  return { what: 'cores', level: 'warn', says, advice };
}

function unfitCheck({ id }: ModelConfig, why: string): Check {
  return { what: `model ${id}`, level: 'fail', says: why, advice: 'the devices that there are stand at backend above' };
}

/** Seats that are longer than what the model was trained for. */
export function contextCheck({ id, inspected }: Pick<Sizing, 'id' | 'inspected'>): Check[] {
  const findings = inspected.kind === 'answer' ? inspected.answer.findings : [];
  return findings
    .filter(({ what }) => what === 'context')
    .map(({ says }): Check => ({ what: `context of ${id}`, level: 'warn', says, advice: CONTEXT_ADVICE }));
}

/** How a chat model calls tools. Not native is a warning unless it was chosen. */
export function callsCheck({ id, inspected }: Pick<Sizing, 'id' | 'inspected'>): Check[] {
  const findings = inspected.kind === 'answer' ? inspected.answer.findings : [];
  return findings
    .filter(({ what }) => what === 'tool calls')
    .map(({ ok, says }): Check => {
      const what = `tools of ${id}`;
      return ok ? { what, level: 'ok', says } : { what, level: 'warn', says, advice: CALLS_ADVICE };
    });
}

function modelCheck(model: ModelConfig | undefined, sizing: Sizing): Check {
  const what = `model ${sizing.id}`;
  const { setup, inspected } = sizing;
  if (!serves(sizing) || inspected.kind === 'failed') {
    const level = model?.load === 'lazy' ? 'warn' : 'fail';
    const advice = `ra-sidecar models verify ${model?.id ?? sizing.id} has details`;
    return { what, level, says: reasons(sizing).join('; '), advice };
  }
  const short = shortOfMemory(sizing);
  if (short !== undefined) {
    return { what, level: 'warn', says: short, advice: 'to be sure, run this again while that sidecar is stopped' };
  }
  const { memory, gpuMemory, sizes } = inspected.answer;
  const most = sizes.find(({ contextPerSeat }) => contextPerSeat >= setup.contextPerSeat)?.seats;
  const cached = memory?.prefixCache ?? 0;
  const needs = [
    memory && `${size(memory.total - cached)} of memory`,
    gpuMemory && `${size(gpuMemory.total)} of GPU memory`,
  ];
  const says =
    `${setup.seats} seats of ${setup.contextPerSeat.toLocaleString('en')} tokens (${most === undefined ? 'more would fit' : seatsText(most, ' would fit')}) ` +
    `on ${loadText(inspected.answer) ?? ''}; takes ${needs.filter(Boolean).join(' and ')}` +
    (cached > 0 ? `, and up to ${size(cached)} for its prefix cache` : ', without a prefix cache');
  return { what, level: 'ok', says };
}
