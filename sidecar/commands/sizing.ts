/**
 * Asks an inspector about the configured models one after another, each given the memory that the previous ones will
 * take.
 */
import { templateOf } from '../app/model-template.js';
import type { ModelConfig } from '../config/config.js';
import type { Sized } from '../app/sized-setup.js';
import { isSameDevice } from '../config/devices.js';
import { imageFinding } from './image-finding.js';
import { inspect, type Inspected, type ModelReport, type Question } from '../engine-client/inspector.js';
import type { Io } from './io.js';
import { Progress } from './progress.js';

/** A model to check, or one of its replicas. */
export interface ToSize {
  readonly id: string;
  readonly setup: Sized;
  /** The model as it is configured, of which the chat template and the format of calls are taken; absent: by its file. */
  readonly model?: ModelConfig;
  /** The start does not load it, so it takes no memory from the models after it. */
  readonly lazy?: boolean;
  /** The devices that its engine sees, whose memory is counted for themselves; absent or none: all that there are. */
  readonly devices?: readonly string[];
  /** Environment variables by which it sees them. */
  readonly environment?: Readonly<Record<string, string>>;
  /** A further replica of the model before it: its weights need not be loaded once more. */
  readonly again?: boolean;
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
  /**
   * A sidecar runs on the same data folder and has its models loaded: a model that does not fit is then reported, not
   * refused.
   */
  readonly running?: boolean;
  /** Another inspector, for tests. */
  readonly entry?: string;
  /** Another vision process, for tests. */
  readonly visionEntry?: string;
}

/** Added to the reason why a model does not fit. */
const HELD = '(a sidecar that runs on this data folder uses a part of it now)';

/**
 * Weights that two models share count once. A model that is not loaded, or does not fit, takes nothing from those after
 * it.
 */
export async function sizeModels(
  models: readonly ToSize[],
  { load, memory, gpuMemory, running, entry, visionEntry }: SizingOptions,
  { clock, terminal }: Pick<Io, 'clock' | 'terminal'>,
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

function withFinding(inspected: Inspected<'model'>, finding: ModelReport['findings'][number]): Inspected<'model'> {
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

  /** The memory that a model with this file finds taken. `own`: bytes beside its engine's. Shared weights of the same file are not subtracted. */
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

/**
 * Why a model does not fit into the memory that is free now, although it is not refused for that; undefined if it fits.
 */
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
