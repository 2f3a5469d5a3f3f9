/** A sidecar with a model that reads images. */
import { join } from 'node:path';
import { ensureProjector, SMALL, type ProjectorName } from '../../bench/models/random-projector.js';
import { architectureModel, writeArchitecture, WIDTH } from './architectures.js';
import { gemma3, gemma4, qwen2vl, qwen3, qwen3vl } from './families/attention.js';
import type { Family } from './families/families.js';
import { qwen35 } from './families/recurrent.js';
import { dataUrl } from './images.js';
import { CACHE } from './models.js';
import { Sidecar } from './sidecar.js';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** A model's file and its projector's. */
export interface SeeingModel {
  readonly file: string;
  readonly projector: string;
}

/** A projector, the architecture of the model that it is tested with, and the past state that such models keep. */
export interface SeeingFamily {
  readonly projector: ProjectorName;
  readonly architecture: string;
  readonly state: Family['state'];
  readonly file: () => Promise<string>;
  readonly deepstack?: boolean;
}

/** All that are compared with llama-server. */
export const SEEING_FAMILIES: readonly SeeingFamily[] = [
  {
    projector: 'mlp',
    architecture: 'qwen3',
    state: 'every token',
    file: () => writeArchitecture('qwen3', (vocabulary) => qwen3(vocabulary, false)),
  },
  {
    projector: 'mlp',
    architecture: 'lfm2',
    state: 'recurrent and every token',
    file: () => architectureModel('hybrid'),
  },
  {
    projector: 'qwen2vl_merger',
    architecture: 'qwen2vl',
    state: 'every token',
    file: () => writeArchitecture('qwen2vl', qwen2vl),
  },
  {
    projector: 'qwen3vl_merger',
    architecture: 'qwen3vl',
    state: 'every token',
    file: () => writeArchitecture('qwen3vl', qwen3vl),
    deepstack: true,
  },
  {
    projector: 'qwen3vl_merger',
    architecture: 'qwen35',
    state: 'recurrent and every token',
    file: () => writeArchitecture('qwen35', qwen35),
  },
  {
    projector: 'gemma3',
    architecture: 'gemma3',
    state: 'sliding window',
    file: () => writeArchitecture('gemma3', gemma3),
  },
  {
    projector: 'gemma4v',
    architecture: 'gemma4',
    state: 'sliding window',
    file: () => writeArchitecture('gemma4', gemma4),
  },
];

/** The first with this projector. */
export async function seeingModel(name: ProjectorName): Promise<SeeingModel> {
  const family = SEEING_FAMILIES.find(({ projector }) => projector === name);
  if (!family) throw new Error(`no model for ${name}`);
  return modelOf(family);
}

/** A random model and projector, made at the first call. */
export async function modelOf({ projector, file, deepstack = false }: SeeingFamily): Promise<SeeingModel> {
  const shape = { ...SMALL[projector], ...(deepstack && { deepstack }) };
  return { file: await file(), projector: await ensureProjector(join(CACHE, 'models'), projector, WIDTH, shape) };
}

export const SEEING = 'seeing';

/** Ready, with its vision process. `more`: of the model; `vision`: of its `vision`. */
export async function seeingSidecar(
  t: Owner,
  { file, projector }: SeeingModel,
  {
    vision = {},
    config = {},
    ...more
  }: { readonly vision?: object; readonly config?: object; readonly [key: string]: unknown } = {},
): Promise<Sidecar> {
  const model = { id: SEEING, kind: 'chat', file, seats: 4, contextPerSeat: 4096, threads: 1, gpu: false, ...more };
  const models = [{ ...model, vision: { projector, threads: 1, ...vision } }];
  const sidecar = await Sidecar.start(t, { config: { models, ...config } });
  const outcome = (event: string): boolean => sidecar.lines.some((line) => line.event === event);
  await sidecar.until(() => outcome('vision ready') || outcome('vision cannot serve its model'), 'vision');
  if (!outcome('vision ready')) throw new Error('the vision process cannot serve its model');
  return sidecar;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly error: { readonly code?: string; readonly message?: string; readonly param?: string };
}

/** A greedy chat. */
export async function see(
  sidecar: Sidecar,
  messages: readonly object[],
  more: Readonly<Record<string, unknown>> = {},
): Promise<Answer> {
  const body = { model: SEEING, messages, temperature: 0, max_completion_tokens: 16, ...more };
  const response = await sidecar.post('/chat/completions', body);
  const answer = (await response.json()) as {
    choices?: { message: { content: string | null; reasoning_content?: string } }[];
    usage?: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
    error?: Answer['error'];
  };
  const [first] = answer.choices ?? [];
  return {
    status: response.status,
    text: `${first?.message.reasoning_content ?? ''}${first?.message.content ?? ''}`,
    promptTokens: answer.usage?.prompt_tokens ?? 0,
    cachedTokens: answer.usage?.prompt_tokens_details.cached_tokens ?? 0,
    error: answer.error ?? {},
  };
}

export const textPart = (text: string): object => ({ type: 'text', text });

export function imagePart(file: Uint8Array, type?: string): object {
  return { type: 'image_url', image_url: { url: dataUrl(file, type) } };
}
