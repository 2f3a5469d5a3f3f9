/** What `ra-sidecar doctor` checks of engines: backend, memory, cores, prefix caches, each model, and external servers. */
import { constants, readdirSync } from 'node:fs';
import { access, statfs } from 'node:fs/promises';
import { remoteSetup, sharesCacheRoom, type CacheSettings, templateOf } from '../app/model-processes.js';
import { planReplicas } from '../app/replica-plans.js';
import type { Config, ModelConfig } from '../config/config.js';
import { EMBEDDED_MODEL } from '../engine-client/weight-files.js';
import { inspect, readServerKey, type Inspected, type MachineFacts } from '../engine-client/inspector.js';
import { CACHE_SHARE, MEMORY_FILES, MOST_CACHE_BYTES } from '../engine-client/engine.js';
import type { Io } from './command.js';
import { fail, guarded, isRunning, ok, warn, type Check } from './host-checks.js';
import {
  isExternal,
  binariesText,
  loadText,
  reasons,
  replicasToSize,
  seatsText,
  serves,
  shortOfMemory,
  sizeModels,
  withFile,
  type Sizing,
} from './sizing.js';
import { size } from './terminal.js';

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

const ROOM_ADVICE = 'to be sure, run this again while nothing else uses the GPU';

/** The findings about a model that have a line of their own, and what to do where one is not good. */
const FINDINGS = [
  { kind: 'context', name: 'context', advice: 'set contextPerSeat to at most what the model was trained for' },
  {
    kind: 'tool calls',
    name: 'tools',
    advice: 'a template of the model’s maker that lists tools, as chatTemplate, or toolFormat: docs/tool-formats.md',
  },
  { kind: 'images', name: 'images', advice: 'docs/vision.md' },
] as const;

const DEVICES_ADVICE = 'the devices that there are stand at backend above';

const SERVER_ADVICE = 'start the server, or correct the engine settings of the model (docs/engines.md)';

/** All of them, in the order in which they are printed. */
export async function engineChecks(config: Config, io: Io): Promise<Check[]> {
  const checks: Check[] = [];
  let machine: MachineFacts | undefined;
  for (const gpu of new Set(config.models.filter((model) => !isExternal(model)).map((model) => model.gpu))) {
    const asked = await inspect('machine', { gpu }, io);
    if (asked.kind === 'failed') checks.push(fail('backend', asked.reason, GPU_ADVICE));
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
    ...wanted.flatMap((one) => (one.kind === 'unfit' ? [fail(`model ${one.model.id}`, one.why, DEVICES_ADVICE)] : [])),
    ...(await Promise.all(config.models.filter(isExternal).map((model) => externalChecks(model, io)))).flat(),
    ...sizings.flatMap((sizing, i) => [modelCheck(found[i]?.model, sizing), ...findingChecks(sizing)]),
  ];
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
  const { available, devices, features } = facts;
  const found = available.map((name) => (name === false ? 'CPU' : name)).join(', ');
  const why = gpu === 'auto' ? `auto: available are ${found}` : `gpu is ${String(gpu)}; available are ${found}`;
  const binaries = binariesText(facts);
  if (gpu === 'auto' && facts.gpu === false && nvidia > 0) {
    const says = `CPU (${why}), but NVIDIA’s driver has ${nvidia === 1 ? 'a GPU' : `${nvidia} GPUs`}; ${binaries}`;
    return warn('backend', says, LIBRARY_ADVICE);
  }
  if (gpu === 'auto' && facts.gpu === false && available.some((name) => name !== false)) {
    return warn('backend', `CPU (${why}; no device was found), ${binaries}`, DEVICE_ADVICE);
  }
  const used = [...features.matchAll(/(\w+) = 1/g)].map(([, name]) => name).join(' ');
  const says =
    facts.gpu === false
      ? `CPU (${why}), ${binaries}: ${used}`
      : `${facts.gpu} on ${devices.join(', ')} (${why}), ${binaries}`;
  return ok('backend', says);
}

/** Whether kernels run on the device: a library may be loaded, and its device found, without one that the driver can run. */
export function computeCheck(
  computed: Inspected<'compute'>,
  { gpu, build }: Pick<MachineFacts, 'gpu' | 'build'>,
): Check {
  const what = 'GPU kernels';
  if (computed.kind === 'answer') {
    return ok(what, `the first step of a small model took ${computed.answer.ms.toFixed(0)} ms`);
  }
  // Another process, such as a running sidecar, may hold all GPU memory.
  if (/memory|alloc/i.test(computed.reason)) return warn(what, computed.reason, ROOM_ADVICE);
  return fail(what, computed.reason, KERNELS_ADVICE(gpu, build));
}

function memoryChecks({ memory, gpuMemory }: MachineFacts): Check[] {
  const line = ({ total, free }: { total: number; free: number }): string => `${size(free)} free of ${size(total)}`;
  return [ok('memory', line(memory)), ...(gpuMemory ? [ok('GPU memory', line(gpuMemory))] : [])];
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
    return warn('cores', says, 'leave one core free: set threads to 0 or a lower number');
  }
  if (onCpu.length === 0 || threads <= cores) return ok('cores', says);
  const advice = 'engines that run at the same time slow each other down: set threads of each model';
  return warn('cores', says, advice);
}

/** Whether seats are longer than what the model was trained for, how it calls tools, and how confined its vision process is. */
export function findingChecks({ id, inspected }: Pick<Sizing, 'id' | 'inspected'>): Check[] {
  const findings = inspected.kind === 'answer' ? inspected.answer.findings : [];
  return FINDINGS.flatMap(({ kind, name, advice }) =>
    findings
      .filter(({ what }) => what === kind)
      .map((found) => (found.ok ? ok(`${name} of ${id}`, found.says) : warn(`${name} of ${id}`, found.says, advice))),
  );
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
    return warn(what, short, 'to be sure, run this again while that sidecar is stopped');
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
  return ok(what, says);
}

/** Whether the prefix caches have room. `engines`: the settings of each engine process. */
export async function cacheCheck(engines: readonly CacheSettings[]): Promise<Check> {
  const room = await statfs(MEMORY_FILES).then(
    ({ blocks, bavail, bsize }) => ({ total: blocks * bsize, free: bavail * bsize }),
    () => undefined,
  );
  return cacheRoomCheck(room, process.availableMemory(), engines);
}

/**
 * `room`: bytes that files in memory can take in all, and those that they can still take now; undefined if this system has no such limit.
 * `free`: bytes of memory. `engines`: as in {@link cacheCheck}.
 */
export function cacheRoomCheck(
  room: { readonly total: number; readonly free: number } | undefined,
  free: number,
  engines: readonly CacheSettings[],
): Check {
  const what = 'prefix caches';
  const asked = engines.reduce((sum, engine) => sum + askedBytes(engine), 0);
  const sharing = engines.filter(sharesCacheRoom).length;
  if (asked === 0 && sharing === 0) return ok(what, 'no model has one');
  if (room === undefined) return ok(what, `none, since this system has no ${MEMORY_FILES}`);
  const says = `${size(room.free)} free of ${size(room.total)} in ${MEMORY_FILES}`;
  const shared = Math.min(CACHE_SHARE * free, sharing * MOST_CACHE_BYTES);
  if (room.total >= asked + shared) return ok(what, says);
  const parts = [
    ...(asked > 0 ? [`prefixCache.bytes of all engines is ${size(asked)}`] : []),
    ...(shared > 0 ? [`a quarter of what is free, at most 8 GiB an engine, is ${size(shared)}`] : []),
  ];
  const advice =
    `they take no more than that, and ${parts.join(', and ')}: in a container set --shm-size, or mount a volume of medium Memory ` +
    '(docs/deploy.md#in-a-container)';
  return warn(what, says, advice);
}

/** What is set for an engine's cache; 0: nothing is, or it has none. */
function askedBytes({ engine, prefixReuse, prefixCache }: CacheSettings): number {
  return engine.kind === 'llama.cpp' && prefixReuse !== 'off' ? (prefixCache.bytes ?? 0) : 0;
}

/** One for each server, which is asked once what an engine process asks it at its start. */
export async function externalChecks(model: ModelConfig, io: Pick<Io, 'clock'>): Promise<Check[]> {
  const what = `model ${model.id}`;
  const problem = await fileProblem(model);
  if (problem !== undefined) return [fail(what, problem)];
  const { file, kind, seats, contextPerSeat } = withFile(model);
  const plan = await planReplicas({ ...model, file });
  if (plan.kind === 'unfit') return [fail(what, plan.why)];
  const setup = { file, kind, seats, contextPerSeat, template: templateOf(model) };
  const checks = plan.replicas.map(async ({ server }) => {
    const remote = server && remoteSetup(model, server);
    if (remote === undefined) return [];
    return serverChecks(model, remote.socket ?? remote.url, await inspect('server', { model: setup, remote }, io));
  });
  return (await Promise.all(checks)).flat();
}

/** `where`: the server's address. */
function serverChecks({ id, load, engine }: ModelConfig, where: string, asked: Inspected<'server'>): Check[] {
  const what = `model ${id}`;
  const problem = asked.kind === 'failed' ? asked.reason : asked.answer.kind === 'unusable' && asked.answer.problem;
  if (problem !== false)
    return [{ what, level: load === 'lazy' ? 'warn' : 'fail', says: problem, advice: SERVER_ADVICE }];
  const warnings = asked.kind === 'answer' && asked.answer.kind === 'serves' ? asked.answer.warnings : [];
  return [
    ok(what, `computed by ${engine.kind} at ${where}, whose prompts are equal to the sidecar’s`),
    ...warnings.map((says) => warn(what, says)),
  ];
}

async function fileProblem(model: ModelConfig): Promise<string | undefined> {
  const { file } = withFile(model);
  const { secretFile } = model.engine;
  try {
    templateOf(model);
    await access(file, constants.R_OK);
    if (secretFile === undefined || (await readServerKey(secretFile)) !== undefined) return undefined;
    return `${secretFile} has no key in its first line`;
  } catch (error) {
    const { code, path } = error as NodeJS.ErrnoException;
    return path === undefined ? (error as Error).message : `${path} cannot be read (${code ?? 'unknown'})`;
  }
}
