import type { GgufInsights, GgufFileInfo, Llama } from 'node-llama-cpp';
import { freeMemory, type Sizes } from './available.js';
import { LoadFailure } from '../load-failure.js';
import { type KvTypes, type EngineSetup, MOST_SEATS } from '../../protocol/setup.js';
import { F16_KV, ggmlTypes } from '../kv-types.js';
import { firstProblem, misfit, type Need, tooHeavy, totalOf, usableOf } from './verdict.js';
import { grammarNeed } from '../../grammar/mask-memory.js';
import { CACHE_SHARE, MOST_CACHE_BYTES } from '../../protocol/cache-key.js';
import { GgmlType } from '../package.js';
import { MOST_LOGITS } from '../addon.js';

/** How a context is going to be made. */
export interface ContextPlan {
  readonly seats: number;
  readonly contextPerSeat: number;
  readonly batchSize: number;
  /** Layers on the GPU; 0 on a CPU. */
  readonly gpuLayers: number;
  readonly flashAttention: boolean | 'auto';
  /** Absent: false. */
  readonly swaFull?: boolean;
  /** Absent: f16. */
  readonly kv?: KvTypes;
}

/** What a model takes of each kind of memory. */
export interface Needs {
  readonly cpu: Need;
  readonly gpu: Need;
}

/**
 * The memory of a model and its context, as llama.cpp itself estimates it in a mode without allocation (measured:
 * within 1% of its actual allocation on a CPU). KV memory grows linearly with the seats, so it is estimated for one and
 * for two: estimating a context that is far too large would itself take seconds and gigabytes.
 *
 * Weights are memory-mapped, so they are page cache that the kernel may drop, but they are counted: every step reads
 * all of them, and an engine whose weights are not in memory reads its disk.
 */
export async function estimateNeeds(
  insights: Pick<GgufInsights, 'estimateContextResourceRequirementsV2'>,
  weights: Sizes,
  { contextPerSeat, batchSize, gpuLayers, flashAttention, swaFull = false, kv = F16_KV }: ContextPlan,
): Promise<Needs> {
  const { keys, values } = ggmlTypes(kv);
  const context = (sequences: number): Promise<Sizes> =>
    insights.estimateContextResourceRequirementsV2({
      contextSize: contextPerSeat,
      sequences,
      batchSize,
      modelGpuLayers: gpuLayers,
      flashAttention,
      swaFullCache: swaFull,
      kvCacheKeyType: keys,
      kvCacheValueType: values,
    });
  const one = await context(1);
  // Also for a single seat: the difference to two separates its KV memory from a step's buffers.
  const two = await context(2);
  const need = (kind: keyof Sizes): Need => {
    const perSeat = Math.max(0, two[kind] - one[kind]);
    return { weights: weights[kind], perSeat, compute: Math.max(0, one[kind] - perSeat) };
  };
  return { cpu: need('cpuRam'), gpu: need('gpuVram') };
}

/** Of the past state of all seats: two full ones a seat. Most checkpoints are of less, since they leave out what can be truncated. */
const STATES_A_SEAT = 2;

/** At most this share of what is left when the model is loaded. */
const SHARE = 1 / 4;

/** More has not been seen to be of use; bytes. */
const MOST = 8 * 2 ** 30;

/**
 * What a model takes with its checkpoints, which lie in host memory. `asked`: bytes; undefined if it follows from the size of its past state
 * and what is free. 0 where its state can be truncated at any position, which needs none.
 */
export function withCheckpoints(
  needs: Needs,
  seats: number,
  appendOnly: boolean,
  asked: number | undefined,
  free: number,
): Needs {
  if (!appendOnly) return needs;
  const state = (needs.cpu.perSeat + needs.gpu.perSeat) * seats;
  const left = Math.max(0, usableOf(free) - totalOf(needs.cpu, seats));
  const checkpoints = asked ?? Math.floor(Math.min(STATES_A_SEAT * state, SHARE * left, MOST));
  return { ...needs, cpu: { ...needs.cpu, checkpoints } };
}

/** A model's memory including what its grammars may keep, which is host memory. Decision models have no grammars. `vocabulary`: tokens. */
export function withGrammars(needs: Needs, kind: EngineSetup['kind'], vocabulary: number): Needs {
  if (kind !== 'chat') return needs;
  return { ...needs, cpu: { ...needs.cpu, grammars: grammarNeed(vocabulary) } };
}

/** Of the tables in which a reply's last tokens are looked up (engine/native/speculation.h): two of so many entries at most. */
const LOOKUP = { tables: 2, entries: 1 << 16, entryBytes: 4 } as const;

/** Of each token of a reply's text, itself and its place in each table. */
const TEXT_BYTES = 12;

/**
 * A model's memory including what drafting takes, which is host memory. Nothing where nothing is drafted: for decisions, where past state
 * cannot be truncated, or where `speculation` is off. `vocabulary`: tokens.
 */
export function withDrafts(
  needs: Needs,
  { kind, speculation }: Pick<EngineSetup, 'kind' | 'speculation'>,
  {
    contextPerSeat,
    batchSize,
    truncatable,
  }: Pick<ContextPlan, 'contextPerSeat' | 'batchSize'> & { truncatable: boolean },
  vocabulary: number,
): Needs {
  if (kind !== 'chat' || speculation !== 'auto' || !truncatable) return needs;
  const { tables, entries, entryBytes } = LOOKUP;
  const drafts = {
    logits: Float32Array.BYTES_PER_ELEMENT * Math.min(MOST_LOGITS, batchSize * vocabulary),
    perSeat:
      tables * entryBytes * Math.min(entries, 2 ** Math.ceil(Math.log2(contextPerSeat))) + TEXT_BYTES * contextPerSeat,
  };
  return { ...needs, cpu: { ...needs.cpu, drafts } };
}

/** Less would have room for a few prompts of a small model only, so there is no cache then; bytes. */
const LEAST = 64 * 2 ** 20;

type Caching = Pick<EngineSetup, 'seats' | 'prefixCache'> & Partial<Pick<EngineSetup, 'prefixReuse'>>;

/**
 * A model's memory including its prefix cache, which is host memory: the configured bytes, or a part of what is free,
 * and at most what files in memory can take. Not what they can take now, since that may be less only because other engines'
 * caches are full; a cache that finds no room gives way when it grows. No cache where nothing is reused. `room`: bytes for all
 * files in memory; undefined if this system has none.
 */
export function withPrefixCache(
  needs: Needs,
  { seats, prefixReuse, prefixCache }: Caching,
  free: number,
  room: number | undefined,
): Needs {
  if (!prefixCache || prefixReuse === 'off') return needs;
  const left = Math.max(0, usableOf(free) - totalOf(needs.cpu, seats));
  const { engines = 1, bytes } = prefixCache;
  const most = room ?? 0;
  const share = Math.floor(Math.min((CACHE_SHARE * left) / engines, MOST_CACHE_BYTES, most / engines));
  return {
    ...needs,
    cpu: { ...needs.cpu, prefixCache: bytes === undefined ? (share < LEAST ? 0 : share) : Math.min(bytes, most) },
  };
}

/** Whether saved states are in pinned memory, which files in memory do not bound (paged-states.ts). */
export function savesToPages(gpuLayers: number, { prefixCache }: Pick<EngineSetup, 'prefixCache'>): boolean {
  return gpuLayers > 0 && prefixCache?.shared !== true;
}

/** Of the GPU memory that is left, at most, and no more than leaves room for a successor of the engine with as many seats. */
const PARKED_SHARE = 1 / 4;

/**
 * Sequences beside the seats, whose past state is GPU memory, for prefixes that are overwritten: a copy between two sequences on the
 * device takes about as long as reading its memory. None where other processes of the sidecar may be on the same device, where they open
 * states, and where nothing is kept. `need`, `free`: GPU memory of the model, and bytes before it is loaded.
 */
export function parkedSequences(need: Need, { seats, prefixReuse, prefixCache }: Caching, free: number): number {
  if (!prefixCache || prefixReuse === 'off') return 0;
  const { bytes, beside = 0, shared = false } = prefixCache;
  if (bytes === 0 || beside > 0 || shared) return 0;
  const total = totalOf(need, seats);
  const left = usableOf(free) - total;
  const most = Math.floor(Math.min(PARKED_SHARE * left, left - total) / Math.max(1, need.perSeat));
  return Math.max(0, Math.min(MOST_SEATS - seats, most));
}

/*
 * Weights that llama.cpp repacks in the process's memory when it loads them on a CPU with AVX2
 * (ggml/src/ggml-cpu/repack.cpp). They are not mapped from the file any more, so two engines of one file have them
 * twice.
 */

type Tensors = NonNullable<GgufFileInfo['fullTensorInfo']>;

/** Weights and bytes of a block of each type that is repacked, and the instructions that it is repacked for. */
const REPACKED: ReadonlyMap<GgmlType, { readonly weights: number; readonly bytes: number; readonly needs: string }> =
  new Map([
    [GgmlType.Q4_0, { weights: 32, bytes: 18, needs: 'AVX2' }],
    [GgmlType.IQ4_NL, { weights: 32, bytes: 18, needs: 'AVX2' }],
    [GgmlType.MXFP4, { weights: 32, bytes: 17, needs: 'AVX2' }],
    [GgmlType.Q4_K, { weights: 256, bytes: 144, needs: 'AVX2' }],
    [GgmlType.Q2_K, { weights: 256, bytes: 84, needs: 'AVX512' }],
  ]);

/** Rows are repacked by eight. */
const ROWS = 8;

const EMBEDDINGS = 'token_embd.weight';
const OUTPUT = 'output.weight';

/**
 * Bytes of the weights that an engine repacks on this CPU. `systemInfo`: llama.cpp's line about its build and the CPU, such as `AVX2 = 1 |
 * REPACK = 1`. Embeddings are looked up and not multiplied: they are repacked only if they are also the output's weights.
 */
export function repackedBytes(tensors: Tensors, systemInfo: string): number {
  const has = (feature: string): boolean => systemInfo.includes(` ${feature} = 1`);
  if (!has('REPACK')) return 0;
  const tied = !tensors.some(({ name }) => name === OUTPUT);
  return tensors.reduce((sum, { name, ggmlType, dimensions }) => {
    const block = REPACKED.get(ggmlType);
    if (block === undefined || !has(block.needs) || !name.endsWith('.weight')) return sum;
    if (name === EMBEDDINGS && !tied) return sum;
    const sizes = dimensions.map(Number);
    if (sizes.length < 2 || (sizes[1] ?? 0) % ROWS !== 0) return sum;
    return sum + (sizes.reduce((product, size) => product * size, 1) / block.weights) * block.bytes;
  }, 0);
}

/**
 * Checks a model against the memory that is free when its load begins: first its weights before they are loaded, then everything before its
 * context is created. In that order, because llama.cpp detects inconsistent tensors by loading, while its estimate of a context asserts on
 * them. Both throw a {@link LoadFailure}; a later attempt may succeed. `mappedElsewhere`: as in the protocol's EngineSetup.
 */
export async function memoryCheck(llama: Llama, insights: GgufInsights, mappedElsewhere: number) {
  const { cpuRam, gpuVram } = await freeMemory(llama);
  const free: Sizes = { cpuRam: cpuRam - mappedElsewhere, gpuVram };
  return {
    /** What is free for the model, bytes. */
    free,
    weights: async (gpuLayers: number): Promise<void> => {
      const weights = await insights.estimateModelResourceRequirementsV2({ gpuLayers });
      refuse(
        firstProblem(
          tooHeavy(weights.cpuRam, free.cpuRam, 'memory'),
          gpuLayers > 0 ? tooHeavy(weights.gpuVram, free.gpuVram, 'GPU memory') : undefined,
        ),
      );
    },
    /** `needs`: of the plan, with its checkpoints. */
    context: ({ cpu, gpu }: Needs, plan: ContextPlan): void =>
      refuse(
        firstProblem(
          misfit(cpu, plan, free.cpuRam, 'memory'),
          plan.gpuLayers > 0 ? misfit(gpu, plan, free.gpuVram, 'GPU memory') : undefined,
        ),
      ),
  };
}

/** Other processes may release memory later. */
function refuse(problem: string | undefined): void {
  if (problem !== undefined) throw new LoadFailure(problem, true);
}
