/**
 * Which engine processes a model gets, on which devices. The settings determine it, except for `auto` and for a number
 * on a host with GPUs: then inspectors find the devices. They also check each device that is named, as its engine would
 * see it, so that a missing device ends the start with a line and is not replaced by a CPU.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isPooling, type EngineSetup } from '../../engine/protocol/setup.js';
import type { ModelConfig } from '../config/config.js';
import { childEnvironment } from '../lib/child-process.js';
import { deviceEnvironment, devicesOf, VISIBLE } from '../config/devices.js';
import { serverUrls } from '../config/model-schema.js';
import { inspect, type Inspected, type MachineFacts, type Question } from '../engine-client/inspector.js';
import { usableCores } from '../../engine/protocol/usable-cores.js';
import { systemClock } from '../lib/clock.js';
import { MAX_TOKENS } from '../vision/client.js';

/** One engine process of a model. */
export interface ReplicaPlan extends Pick<EngineSetup, 'seats' | 'contextPerSeat' | 'threads' | 'cores'> {
  /** The devices that it sees; an empty list: all devices. */
  readonly devices: readonly string[];
  /** The environment variables that restrict its process to these devices. */
  readonly environment: Readonly<Record<string, string>>;
  /** The server that computes in its place. */
  readonly server?: { readonly url: string; readonly socket?: string };
}

export type Planned =
  | { readonly kind: 'planned'; readonly replicas: readonly ReplicaPlan[] }
  /** `why`: one line that follows the model's name. */
  | { readonly kind: 'unfit'; readonly why: string };

/** Asks an inspector that sees the devices of this environment. */
export interface Inspectors {
  machine(gpu: ModelConfig['gpu'], environment: ReplicaPlan['environment']): Promise<Inspected<'machine'>>;
  fits(model: ModelConfig, environment: ReplicaPlan['environment']): Promise<boolean>;
  /** The UUID of each device, by CUDA's index; undefined if they are not known. */
  uuids(): readonly string[] | undefined;
}

/** No host has more: of Vulkan so many are looked at. */
export const MOST_DEVICES = 16;

const PROCESSES: Inspectors = {
  machine: (gpu, environment) => inspect('machine', { gpu }, { clock: systemClock, environment }),
  fits: async (model, environment) => {
    const question = { setup: setupOf(model), load: false, taken: { memory: 0, gpuMemory: 0 } };
    const asked = await inspect('model', question, { clock: systemClock, environment });
    return asked.kind === 'answer' && asked.answer.findings.every(({ ok, needed }) => ok || !needed);
  },
  uuids: () => gpuUuids(childEnvironment()['CUDA_DEVICE_ORDER']),
};

/** The replicas of one model, whose `file` is a path. Never rejects. */
export async function planReplicas(model: ModelConfig, ask = PROCESSES): Promise<Planned> {
  const { replicas, gpu } = model;
  if (model.engine.kind !== 'llama.cpp')
    return planned(serversOf(model).map((server) => ({ ...plan(model, {}), server })));
  if (replicas === 1) return planned([plan(model, {})]);
  if (typeof replicas === 'object') {
    return checked(
      replicas.map((replica) => plan(model, { ...replica, devices: devicesOf(replica) })),
      gpu,
      ask,
    );
  }
  const machine = gpu === false ? undefined : await ask.machine(gpu, {});
  if (machine?.kind === 'failed') return { kind: 'unfit', why: machine.reason };
  const names = machine === undefined || machine.answer.gpu === false ? [] : machine.answer.devices;
  if (machine === undefined || names.length === 0) return planned(onCpu(model, replicas === 'auto' ? 1 : replicas));
  if (replicas !== 'auto' && names.length < replicas) {
    const there = names.length === 1 ? 'is one device' : `are ${names.length} devices`;
    return { kind: 'unfit', why: `replicas is ${replicas}, and there ${there}: ${names.join(', ')}` };
  }
  const each = (await indicesOf(machine.answer, ask)).map((index) => plan(model, { devices: [index] }));
  return planned(replicas === 'auto' ? await fitting(model, each, ask) : each.slice(0, replicas));
}

/** The host of a URL over a socket is a name without meaning. */
function serversOf(model: ModelConfig): NonNullable<ReplicaPlan['server']>[] {
  const { socket } = model.engine;
  if (socket !== undefined) return [{ url: 'http://localhost', socket }];
  return serverUrls(model).map((url) => ({ url: url.replace(/\/+$/, '') }));
}

function planned(replicas: readonly ReplicaPlan[]): Planned {
  return { kind: 'planned', replicas };
}

type Differences = Partial<Omit<ReplicaPlan, 'environment' | 'server'>>;

function plan({ seats, contextPerSeat, threads, cores }: ModelConfig, own: Differences): ReplicaPlan {
  const devices = own.devices ?? [];
  const where = own.cores ?? cores;
  return {
    seats: own.seats ?? seats,
    contextPerSeat: own.contextPerSeat ?? contextPerSeat,
    threads: own.threads ?? threads,
    ...(where !== undefined && { cores: where }),
    devices,
    environment: deviceEnvironment(devices, childEnvironment()),
  };
}

/** Compute threads wait for each other, so replicas that share the cores get a part of them each. */
function onCpu(model: ModelConfig, count: number): ReplicaPlan[] {
  const shared = count > 1 && model.threads === 0 && model.cores === undefined;
  const threads = shared ? Math.max(1, Math.floor((usableCores().cores - 1) / count)) : model.threads;
  return Array.from({ length: count }, () => plan(model, { threads }));
}

/**
 * The indices by which the devices of an engine that sees all are named. CUDA numbers these; Vulkan's indices count those
 * too that llama.cpp passes over unless one names them, such as CPUs and second drivers of a device: it is found out by name.
 */
async function indicesOf({ gpu, devices }: MachineFacts, ask: Inspectors): Promise<string[]> {
  if (gpu !== 'vulkan' || childEnvironment()[VISIBLE.vulkan] !== undefined)
    return devices.map((_, index) => String(index));
  const left = [...devices];
  const found: string[] = [];
  for (let index = 0; index < MOST_DEVICES && left.length > 0; index += 1) {
    const seen = await ask.machine(gpu, deviceEnvironment([String(index)], {}));
    const at = seen.kind === 'answer' ? left.indexOf(seen.answer.devices[0] ?? '') : -1;
    if (at < 0) continue;
    left.splice(at, 1);
    found.push(String(index));
  }
  return found;
}

/** Those on whose devices the model fits; one over all devices if it fits on none. */
async function fitting(model: ModelConfig, each: readonly ReplicaPlan[], ask: Inspectors): Promise<ReplicaPlan[]> {
  const fits = await Promise.all(each.map(({ environment }) => ask.fits(model, environment)));
  const found = each.filter((_, index) => fits[index]);
  return found.length > 0 ? found : [plan(model, {})];
}

/** The replicas, if each sees as many devices as it names. */
async function checked(replicas: readonly ReplicaPlan[], gpu: ModelConfig['gpu'], ask: Inspectors): Promise<Planned> {
  const problems = await Promise.all(replicas.map((replica, index) => missing(replica, index, gpu, ask)));
  const why = problems.find((problem) => problem !== undefined) ?? namedTwice(replicas, ask.uuids());
  return why === undefined ? planned(replicas) : { kind: 'unfit', why };
}

async function missing(
  { devices, environment }: ReplicaPlan,
  index: number,
  gpu: ModelConfig['gpu'],
  ask: Inspectors,
): Promise<string | undefined> {
  if (devices.length === 0) return undefined;
  const seen = await ask.machine(gpu, environment);
  const found = seen.kind === 'answer' && seen.answer.gpu !== false ? seen.answer.devices.length : 0;
  if (found === devices.length) return undefined;
  const why = seen.kind === 'failed' ? seen.reason : `an engine that may see them alone sees ${found || 'none'}`;
  return `${nameOf(index, devices)} is not there: ${why}`;
}

/** Why a device is one that was named before, by its index or by the beginning of its UUID. */
function namedTwice(replicas: readonly ReplicaPlan[], uuids: readonly string[] | undefined): string | undefined {
  const named = new Map<string, string>();
  for (const [index, replica] of replicas.entries()) {
    const uniform = uniformNames(replica, uuids);
    for (const [i, device] of replica.devices.entries()) {
      const name = uniform[i] ?? device;
      const before = named.get(name);
      if (before !== undefined) return `${nameOf(index, replica.devices)}: ${device} is the same device as ${before}`;
      named.set(name, `${device} of replica ${index}`);
    }
  }
  return undefined;
}

/**
 * Names for the devices of a replica by which those of all replicas and models can be compared: UUIDs where they are known, otherwise what
 * CUDA's variable has. `uuids`: as {@link Inspectors} give them.
 */
export function uniformNames(
  { devices, environment }: Pick<ReplicaPlan, 'devices' | 'environment'>,
  uuids: readonly string[] | undefined,
): readonly string[] {
  const visible = environment[VISIBLE.cuda]?.split(',') ?? [];
  return devices.map((device, i) => {
    const entry = visible[i] ?? device;
    return uuids?.[Number(entry)] ?? uuids?.find((known) => known.startsWith(entry)) ?? entry;
  });
}

/** What a replica is called in messages to the operator. */
export function nameOf(index: number, devices: readonly string[]): string {
  if (devices.length === 0) return `replica ${index}`;
  return `replica ${index} (device${devices.length === 1 ? '' : 's'} ${devices.join(', ')})`;
}

/** NVIDIA's driver has one folder for each GPU, named by its place on the bus: to read them starts no process. */
const FOLDER = '/proc/driver/nvidia/gpus';

/**
 * The UUIDs of NVIDIA's GPUs, as CUDA counts them. Undefined if there is no such driver, or CUDA's order is not known, since
 * by default it puts the fastest first and they differ. `order`: the value of CUDA_DEVICE_ORDER.
 */
export function gpuUuids(order: string | undefined, folder = FOLDER): readonly string[] | undefined {
  let texts: readonly string[];
  try {
    const places = readdirSync(folder).sort();
    texts = places.map((place) => readFileSync(join(folder, place, 'information'), 'utf8'));
  } catch {
    return undefined;
  }
  const alike = new Set(texts.map((text) => fieldOf(text, 'Model'))).size === 1;
  const uuids = texts.map((text) => fieldOf(text, 'GPU UUID'));
  return (alike || order === 'PCI_BUS_ID') && uuids.every((uuid) => uuid !== undefined) ? uuids : undefined;
}

function fieldOf(text: string, name: string): string | undefined {
  return new RegExp(`^${name}:\\s*(.+?)\\s*$`, 'm').exec(text)?.[1];
}

/** What decides how a configured model is loaded and how much memory it needs, as engines and inspectors are told it. */
export type Sized = Question['model']['setup'];

/** Of a model, each of its replicas. */
export function setupOf(model: ModelConfig): Sized & Pick<EngineSetup, 'prefixReuse'> {
  const { file, kind, seats, contextPerSeat, threads, cores, gpu, flashAttention, prefillTokensPerStep } = model;
  const { gpuLayers, swaFull, kv, checkpoints, speculation, prefixReuse, prefixCache, vision } = model;
  const where = { ...(cores !== undefined && { cores }), gpu, ...(gpuLayers !== 'all' && { gpuLayers }) };
  const kept = isPooling(kind)
    ? { prefixReuse: 'off' as const }
    : { checkpoints, speculation, prefixReuse, prefixCache };
  const state = { prefillTokensPerStep, swaFull, kv, ...kept };
  const projector = vision && { file: resolve(vision.projector), maxTokens: vision.maxTokensPerImage ?? MAX_TOKENS };
  return {
    file,
    kind,
    seats,
    contextPerSeat,
    threads,
    ...where,
    flashAttention,
    ...state,
    ...(projector && { projector }),
  };
}
