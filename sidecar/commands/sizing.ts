/** Asks an inspector about configured models, one after another, each beside what those before it will take. */
import type { ModelConfig } from '../config.js';
import { inspect, type Inspected, type Question } from '../engine-client/inspector.js';
import type { Io } from './io.js';
import { Progress } from './progress.js';

/** Settings of a model that decide what it takes. */
export type Sized = Question['model']['setup'];

export interface Sizing {
  readonly id: string;
  readonly setup: Sized;
  readonly inspected: Inspected<'model'>;
}

export interface SizingOptions {
  /** Load the weights too. */
  readonly load: boolean;
  /** Bytes of memory to reckon with; absent: what is free. */
  readonly memory?: number;
}

export function setupOf(model: ModelConfig): Sized {
  const { file, kind, seats, contextPerSeat, threads, gpu, flashAttention, prefillTokensPerStep } = model;
  return { file, kind, seats, contextPerSeat, threads, gpu, flashAttention, prefillTokensPerStep };
}

/** Weights that two models share are there once. */
export async function sizeModels(
  models: readonly { readonly id: string; readonly setup: Sized }[],
  { load, memory }: SizingOptions,
  { clock, terminal }: Pick<Io, 'clock' | 'terminal'>,
): Promise<Sizing[]> {
  const bar = new Progress(clock, terminal);
  const sizings: Sizing[] = [];
  const taken = { memory: 0, gpuMemory: 0 };
  const seen = new Set<string>();
  for (const { id, setup } of models) {
    bar.show(`looking at ${id}`, 0);
    const inspected = await inspect(
      'model',
      { setup, load, taken: { ...taken }, ...(memory !== undefined && { memory }) },
      { clock, onProgress: (done, total) => bar.show(`loading ${id}`, done / total) },
    );
    sizings.push({ id, setup, inspected });
    if (inspected.kind === 'failed') continue;
    const shared = seen.has(setup.file);
    for (const kind of ['memory', 'gpuMemory'] as const) {
      const fit = inspected.answer[kind];
      // On a GPU each engine has a copy of its own.
      if (fit) taken[kind] += fit.total - (shared && kind === 'memory' ? fit.weights : 0);
    }
    seen.add(setup.file);
  }
  bar.clear();
  return sizings;
}

/** Whether a model can be served as it is configured. */
export function serves({ inspected }: Sizing): boolean {
  return inspected.kind === 'answer' && inspected.answer.findings.every(({ ok, needed }) => ok || !needed);
}

/** Why it cannot, a line each. */
export function reasons({ inspected }: Sizing): string[] {
  if (inspected.kind === 'failed') return [inspected.reason];
  return inspected.answer.findings.filter(({ ok, needed }) => needed && !ok).map(({ says }) => says);
}
