/** What `doctor` and `models verify` find of the models. Replicas are inspected in turn, each given the memory that earlier ones leave. */
import { sharesCacheRoom, visionSetupOf, templateOf } from '../app/model-processes.js';
import { planReplicas, nameOf, setupOf, type Sized } from '../app/replica-plans.js';
import type { ModelConfig } from '../config/config.js';
import { isSameDevice } from '../config/devices.js';
import { MOST_SEATS } from '../config/model-schema.js';
import { EMBEDDED_MODEL } from '../engine-client/weight-files.js';
import {
  inspect,
  type Fit,
  type Inspected,
  type LoadFacts,
  type ModelReport,
  type Question,
} from '../engine-client/inspector.js';
import type { Clock } from '../lib/clock.js';
import { probeVision, type Probed } from '../vision/process.js';
import type { Io } from './command.js';
import { columns, Progress, size } from './terminal.js';

type Finding = ModelReport['findings'][number];

/** The name of the bundled model in the configuration. */
const EMBEDDED = 'embedded';

/** The model with the path of its file. */
export function withFile(model: ModelConfig): ModelConfig {
  return model.file === EMBEDDED ? { ...model, file: EMBEDDED_MODEL } : model;
}

/** Whether an external server has its weights. */
export function isExternal({ engine }: Pick<ModelConfig, 'engine'>): boolean {
  return engine.kind !== 'llama.cpp';
}

/** A model to check, or one of its replicas. */
export interface ToSize {
  readonly id: string;
  readonly setup: Sized;
  /** The model as it is configured, of which the chat template and the format of calls are taken; absent: by its file. */
  readonly model?: ModelConfig;
  /** The start does not load it, so it takes no memory from the models after it. */
  readonly lazy?: boolean;
  /** The devices that its engine sees; absent or none: all devices of the host. */
  readonly devices?: readonly string[];
  /** Environment variables by which it sees them. */
  readonly environment?: Readonly<Record<string, string>>;
  /** A further replica of the previous model: its weights are not loaded again. */
  readonly again?: boolean;
}

/** A replica to check, or why the model's replicas cannot be planned. */
export type ToCheck = { readonly model: ModelConfig } & (
  { readonly kind: 'replica'; readonly toSize: ToSize } | { readonly kind: 'unfit'; readonly why: string }
);

/** The replicas of each model, in order. `models`: with the paths of their files. */
export async function replicasToSize(models: readonly ModelConfig[]): Promise<ToCheck[]> {
  const all = (await Promise.all(models.map(replicasOf))).flat();
  const engines = all.filter(({ kind, model }) => kind === 'replica' && sharesCacheRoom(model)).length;
  return all.map((one) => (one.kind === 'replica' ? { ...one, toSize: sharing(one.toSize, engines) } : one));
}

/** The replica's setup with the number of engines that share free memory for caches without a set size. */
function sharing(toSize: ToSize, engines: number): ToSize {
  const { prefixCache } = toSize.setup;
  return prefixCache ? { ...toSize, setup: { ...toSize.setup, prefixCache: { ...prefixCache, engines } } } : toSize;
}

async function replicasOf(model: ModelConfig): Promise<ToCheck[]> {
  const plan = await planReplicas(model);
  if (plan.kind === 'unfit') return [{ kind: 'unfit', model, why: plan.why }];
  return plan.replicas.map(({ devices, environment, ...sizes }, index) => ({
    kind: 'replica',
    model,
    toSize: {
      id: plan.replicas.length === 1 ? model.id : `${model.id}, ${nameOf(index, devices)}`,
      setup: { ...setupOf(model), ...sizes },
      model,
      lazy: model.load === 'lazy',
      devices,
      environment,
      again: index > 0,
    },
  }));
}

export interface Sizing {
  readonly id: string;
  readonly setup: Sized;
  readonly inspected: Inspected<'model'>;
}

export interface SizingOptions {
  /** Load the weights too. */
  readonly load: boolean;
  /** Bytes of memory to check against; absent: the free memory. */
  readonly memory?: number;
  /** Bytes of a GPU's memory to check against, which this machine may lack; absent: the free memory of its GPUs, if it has any. */
  readonly gpuMemory?: number;
  /** A sidecar runs on the same data folder and has its models loaded: a model that does not fit is then reported, not refused. */
  readonly running?: boolean;
  /** Another inspector, for tests. */
  readonly entry?: string;
  /** Another vision process, for tests. */
  readonly visionEntry?: string;
}

/** Added to the reason why a model does not fit. */
const HELD = '(a sidecar that runs on this data folder uses a part of it now)';

/** Weights that two models share count once. A model that is not loaded, or does not fit, takes nothing from those after it. */
export async function sizeModels(
  models: readonly ToSize[],
  { load, memory, gpuMemory, running, entry, visionEntry }: SizingOptions,
  { clock, terminal, inspectHere }: Pick<Io, 'clock' | 'terminal' | 'inspectHere'>,
): Promise<Sizing[]> {
  const bar = new Progress(clock, terminal);
  const sizings: Sizing[] = [];
  const taken = new Taken();
  for (const { id, setup, model, lazy, devices = [], environment = {}, again = false } of models) {
    bar.show(`checking ${id}`, 0);
    const template = templateFor(model);
    if (template.kind === 'failed') {
      sizings.push({ id, setup, inspected: template });
      continue;
    }
    const images = again ? undefined : await imageFinding(model, setup.file, clock, visionEntry);
    const looked = await inspect(
      'model',
      {
        setup,
        template: template.settings,
        load: load && !again,
        taken: taken.beside(setup.file, devices, images?.bytes),
        ...(memory !== undefined && { memory }),
        ...(gpuMemory !== undefined && { gpuMemory }),
      },
      {
        clock,
        environment,
        onProgress: (done, total) => bar.show(`loading ${id}`, done / total),
        ...(entry !== undefined && { entry }),
        ...(inspectHere && { inspectHere }),
      },
    );
    const inspected = images ? withFinding(looked, images.finding) : looked;
    const sizing = { id, setup, inspected };
    if (inspected.kind === 'answer' && serves(sizing) && lazy !== true) {
      taken.addBytes(images?.bytes ?? 0);
      taken.add(setup, devices, inspected.answer);
    }
    // With an explicit memory size, processes on this machine do not matter.
    sizings.push(running === true && memory === undefined && gpuMemory === undefined ? besideRunning(sizing) : sizing);
  }
  bar.clear();
  return sizings;
}

function withFinding(inspected: Inspected<'model'>, finding: Finding): Inspected<'model'> {
  if (inspected.kind === 'failed') return inspected;
  const { answer } = inspected;
  return { kind: 'answer', answer: { ...answer, findings: [...answer.findings, finding] } };
}

type TemplateFor =
  | { readonly kind: 'settings'; readonly settings: NonNullable<Question['model']['template']> }
  | Extract<Inspected<'model'>, { kind: 'failed' }>;

function templateFor(model: ModelConfig | undefined): TemplateFor {
  try {
    return { kind: 'settings', settings: model ? templateOf(model) : {} };
  } catch (error) {
    return { kind: 'failed', reason: error instanceof Error ? error.message : 'its template cannot be read' };
  }
}

/** Bytes that the models checked so far will take. */
class Taken {
  #memory = 0;
  /** Of each engine, with the devices that it sees. */
  readonly #gpuMemory: { readonly devices: readonly string[]; readonly bytes: number }[] = [];
  /** Memory-mapped weights by file. On a GPU each engine has its own copy. */
  readonly #weights = new Map<string, number>();

  /** Memory that is taken from a model with this file, which shares mapped weights of the same file. `own`: bytes of its vision process. */
  beside(file: string, devices: readonly string[], own = 0): Question['model']['taken'] {
    const others = [...this.#weights].filter(([other]) => other !== file);
    return {
      memory: others.reduce((sum, [, bytes]) => sum + bytes, this.#memory + own),
      gpuMemory: this.#gpuMemory.reduce((sum, other) => sum + other.bytes * shareOn(devices, other.devices), 0),
    };
  }

  addBytes(memory: number): void {
    this.#memory += memory;
  }

  /** A prefix cache whose size is not set takes only what is free when it grows, so nothing from other models. */
  add({ file, prefixCache }: Sized, devices: readonly string[], { memory, gpuMemory }: ModelReport): void {
    if (memory) {
      const mapped = memory.weights - memory.repacked;
      const yielding = prefixCache?.bytes === undefined ? (memory.prefixCache ?? 0) : 0;
      this.#memory += memory.total - mapped - yielding;
      this.#weights.set(file, Math.max(mapped, this.#weights.get(file) ?? 0));
    }
    if (gpuMemory) this.#gpuMemory.push({ devices, bytes: gpuMemory.total });
  }
}

/**
 * The share of an engine's GPU memory that is on `devices`, if its layers are split evenly over those that it sees: `seen`. An empty
 * list is of all that there are. How many these are is not known here, so nothing of such an engine is counted on named devices, and
 * nothing of one on a UUID where an index is named.
 */
function shareOn(devices: readonly string[], seen: readonly string[]): number {
  if (devices.length === 0) return 1;
  const isNamed = (device: string): boolean => devices.some((name) => isSameDevice(name, device) === true);
  return seen.length === 0 ? 0 : seen.filter(isNamed).length / seen.length;
}

function besideRunning(sizing: Sizing): Sizing {
  const { inspected } = sizing;
  if (inspected.kind === 'failed') return sizing;
  const findings = inspected.answer.findings.map((finding) =>
    finding.what === 'memory' && !finding.ok ? { ...finding, needed: false, says: `${finding.says} ${HELD}` } : finding,
  );
  return { ...sizing, inspected: { kind: 'answer', answer: { ...inspected.answer, findings } } };
}

/** Why a model does not fit into the memory that is free now, although it is not refused for that; undefined if it fits. */
export function shortOfMemory({ inspected }: Sizing): string | undefined {
  if (inspected.kind === 'failed') return undefined;
  return inspected.answer.findings.find(({ what, ok, needed }) => what === 'memory' && !ok && !needed)?.says;
}

/** Whether a model can be served as it is configured. */
export function serves({ inspected }: Sizing): boolean {
  return inspected.kind === 'answer' && inspected.answer.findings.every(({ ok, needed }) => ok || !needed);
}

/** The reasons why it cannot, one line each. */
export function reasons({ inspected }: Sizing): string[] {
  if (inspected.kind === 'failed') return [inspected.reason];
  return inspected.answer.findings.filter(({ ok, needed }) => needed && !ok).map(({ says }) => says);
}

/** Undefined if the model takes no images. `file`: its path. `entry`: of the process' module, absent: our own. */
export async function imageFinding(
  model: ModelConfig | undefined,
  file: string,
  clock: Clock,
  entry?: string,
): Promise<{ readonly finding: Finding; readonly bytes: number } | undefined> {
  const setup = model && visionSetupOf({ ...model, file });
  if (!setup) return undefined;
  const probed = await probeVision(setup, clock, entry);
  return { finding: findingOf(probed), bytes: probed.kind === 'ready' ? (probed.bytes ?? 0) : 0 };
}

function findingOf(probed: Probed): Finding {
  if (probed.kind === 'unable') {
    return { what: 'images', ok: false, needed: true, says: probed.reason };
  }
  const { filtered, bounded, ownUser } = probed.facts.confinement;
  const all = [
    filtered ? 'system calls filtered' : 'system calls not filtered',
    bounded ? 'memory bounded' : 'memory not bounded',
    ...(ownUser ? ['a user of its own'] : []),
  ];
  const memory = probed.bytes === undefined ? '' : `, takes ${size(probed.bytes)} of memory`;
  return {
    what: 'images',
    ok: filtered && bounded,
    needed: false,
    says: `the projector fits${memory}; ${all.join(', ')}`,
  };
}

/** All of it, several lines. */
export function modelText(sizing: Sizing): string {
  const { id, setup, inspected } = sizing;
  const verdict = serves(sizing)
    ? `it can be served as a ${setup.kind} model${shortOfMemory(sizing) === undefined ? '' : ', once there is enough memory'}`
    : `it cannot be served: ${reasons(sizing).join('; ')}`;
  if (inspected.kind === 'failed') return `${id}\n  ${verdict}\n`;
  const { answer } = inspected;
  const lines = [
    id,
    ...headLines(answer),
    ...answer.findings.map(({ what, ok, needed, says }) => `  ${mark(ok, needed)} ${what.padEnd(13)}${says}`),
    ...loadLines(answer),
    ...fitLines('memory', answer.memory, setup.seats),
    ...fitLines('GPU memory', answer.gpuMemory, setup.seats),
  ];
  const table = answer.sizes.length === 0 ? '' : sizeTable(answer).replace(/^(?=.)/gm, '  ');
  return `${lines.join('\n')}\n${table}  ${verdict}\n`;
}

function mark(ok: boolean, needed: boolean): string {
  if (ok) return 'ok  ';
  return needed ? 'fail' : 'no  ';
}

function headLines({ head }: ModelReport): string[] {
  if (!head) return [];
  const { name, architecture, quantisation, bytes, trainedContext } = head;
  const parts = [
    ...(name === undefined ? [] : [name]),
    architecture,
    ...(quantisation === undefined ? [] : [quantisation]),
    size(bytes),
    ...(trainedContext === undefined ? [] : [`trained for ${trainedContext.toLocaleString('en')} tokens`]),
  ];
  return [`  ${parts.join(', ')}`];
}

/** Of a digest, hex characters that are printed. */
const DIGEST = 12;

const BINARIES: Readonly<Record<LoadFacts['build'], string>> = {
  prebuilt: 'the package’s own binaries',
  localBuild: 'binaries built on this machine',
};

/** Which binaries compute. `docs/engine.md` says how to compile them oneself. */
export function binariesText({ build, addon }: Pick<LoadFacts, 'build' | 'addon'>): string {
  return `${BINARIES[build]} with ra-engine ${addon.slice(0, DIGEST)}`;
}

/** `CPU, 1 thread`. */
export function loadText({ load }: ModelReport): string | undefined {
  if (!load) return undefined;
  const { gpu, gpuLayers, layers, threads, flashAttention } = load;
  const where = gpu === false || gpuLayers === 0 ? 'CPU' : `${gpuLayers} of ${layers} layers on the GPU (${gpu})`;
  const attention = flashAttention === false ? 'without flash attention' : 'with flash attention where it can';
  return `${where}, ${threads} thread${threads === 1 ? '' : 's'}, ${attention}`;
}

function loadLines(report: ModelReport): string[] {
  const { load } = report;
  if (!load) return [];
  return [`  loaded on ${loadText(report) ?? ''}`, `  computed by ${binariesText(load)} (to compile it: make native)`];
}

function fitLines(where: string, fit: Fit | undefined, seats: number): string[] {
  if (!fit) return [];
  const { weights, perSeat, compute, checkpoints = 0, prefixCache = 0, grammars, total, usable } = fit;
  const saved = checkpoints > 0 ? `checkpoints ${size(checkpoints)}, ` : '';
  const cached = prefixCache > 0 ? `prefix cache up to ${size(prefixCache)} in /dev/shm, ` : '';
  const held = grammars ? `grammars up to ${size(grammars.stores + grammars.perSeat * seats)}, ` : '';
  return [
    `  ${where}: weights ${size(weights)}, KV ${size(perSeat)} per seat (${seats}: ${size(perSeat * seats)}), compute ${size(compute)}, ${saved}${cached}${held}` +
      `together ${size(total)} of ${size(usable)} that may be used`,
  ];
}

function sizeTable({ sizes }: ModelReport): string {
  const rows = sizes.map(({ contextPerSeat, perSeat, seats }) => [
    contextPerSeat.toLocaleString('en'),
    size(perSeat),
    seatsText(seats),
  ]);
  return columns([['CONTEXT PER SEAT', 'KV PER SEAT', 'SEATS THAT FIT'], ...rows]);
}

/** How many seats fit, followed by `fit`, and whether these are all that an engine can have. */
export function seatsText(seats: number, fit = ''): string {
  return seats < MOST_SEATS ? `${seats}${fit}` : `${MOST_SEATS}${fit}, the most that an engine can have`;
}
